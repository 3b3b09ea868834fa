"""Files of dials: vectors as safetensors, the rest as JSON metadata, tied to the weights of the model."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
from pydantic import Field, ValidationError
from safetensors import safe_open
from safetensors.numpy import save_file

from extract.atomic_write import atomic_path
from extract.chat.template import Arguments
from extract.errors import UserError
from extract.record import Record
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.actuator import ActuatorRecord, actuator_of, actuator_record
from steering.dial import CategoryRead, CategoryThresholds, Dial, Kind, Reference, category_read

CAST = "cast_fingerprint"  # in a file's metadata
TEMPLATE_ARGS = "template_args"
CATEGORIES = "categories"
REFERENCE = ("probability", "streams", "answers")  # arrays of a dial's reference
KEPT = ("steps", "reread", "later")  # fields of a dial that are kept as they are


def save_dials(
    dials: Sequence[Dial],
    path: str | os.PathLike[str],
    fingerprint: str,
    cast_fingerprint: str | None = None,
    template_args: Arguments | None = None,
) -> None:
    """Write dials to one safetensors file with JSON metadata, tied to the model's weights and template arguments."""
    tensors, metadata = {}, {"fingerprint": fingerprint}
    if cast_fingerprint is not None:
        metadata[CAST] = cast_fingerprint
    if template_args is not None:
        metadata[TEMPLATE_ARGS] = json.dumps(template_args)
    for dial in dials:
        if dial.probe is not None:
            tensors[f"{dial.kind}.read"] = dial.probe.weight
        if dial.write is not None:
            tensors[f"{dial.kind}.write"] = dial.write.vector
        for i, direction in enumerate(dial.opening):
            tensors[f"{dial.kind}.opening.{i}"] = direction.vector
        if dial.reference is not None:
            tensors |= {f"{dial.kind}.reference.{name}": getattr(dial.reference, name) for name in REFERENCE}
        metadata[dial.kind] = json.dumps(_metadata(dial).to_dict())
    if read := category_read(dials):
        tensors |= {f"{CATEGORIES}.weight": read.weight, f"{CATEGORIES}.bias": read.bias}
        about = _CategoryMetadata.model_validate(read, from_attributes=True)
        metadata[CATEGORIES] = json.dumps(about.to_dict())
    with atomic_path(Path(path)) as partial:
        # safetensors writes the bytes of an array as they lie, whatever its order
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, partial, metadata=metadata)


def load_dials(
    path: str | os.PathLike[str],
    fingerprint: str,
    cast_fingerprint: str | None = None,
    say: Callable[[str], None] = warnings.warn,
    template_args: Arguments | None = None,
) -> list[Dial]:
    """Read dials for a model; says so where its dtype is another. UserError: unreadable, or of another model."""
    dials, made_for = read_dials(path)
    if remark := check_model(path, made_for, fingerprint, cast_fingerprint, template_args):
        say(remark)
    return dials


def check_model(
    path: str | os.PathLike[str],
    made_for: MadeFor,
    fingerprint: str,
    cast_fingerprint: str | None = None,
    template_args: Arguments | None = None,
) -> str | None:
    """Refuse dials of other weights or template arguments; return a remark where only the weights' dtype is another."""
    remark = None
    if made_for.fingerprint != fingerprint:
        if made_for.cast_fingerprint is None or made_for.cast_fingerprint != cast_fingerprint:
            raise UserError(
                f"{path} was made for other weights (fingerprint {made_for.fingerprint[:12]}…, "
                f"this model {fingerprint[:12]}…)"
            )
        remark = (
            f"{path} was made for these weights in another dtype; its thresholds were chosen and certified there, "
            "and rates may differ here"
        )
    made = made_for.template_args
    if made is not None and template_args is not None and made != template_args:
        there, here = ([f"{name}={json.dumps(value)}" for name, value in of.items()] for of in (made, template_args))
        options = [f"--template-arg {setting}" for setting in there] or ["without --template-arg"]
        raise UserError(
            f"{path} was made with the chat template's {', '.join(there) or 'defaults'}, and this model is opened with "
            f"{', '.join(here) or 'defaults'}; open it in the same way ({' '.join(options)})"
        )
    return remark


@dataclass(frozen=True)
class MadeFor:
    """The weights that dials were made for, and the template arguments they were fitted under."""

    fingerprint: str
    cast_fingerprint: str | None = None  # which a cast does not change; None in files of earlier versions
    template_args: Arguments | None = None  # None in files of earlier versions


def read_dials(path: str | os.PathLike[str]) -> tuple[list[Dial], MadeFor]:
    """Read dials, and the model they were made for."""
    if not Path(path).is_file():
        raise UserError(f"dials file not found: {path}; make it with: refusal steer CONFIG")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except Exception as error:  # safetensors raises its own exception class for any malformed file
        raise UserError(f"{path} is not a dials file: {error}") from None
    fingerprint, cast_fingerprint = metadata.pop("fingerprint", None), metadata.pop(CAST, None)
    if fingerprint is None:
        raise UserError(f"{path} is not a dials file: it has no fingerprint of the model it is for")
    categories, template_args = metadata.pop(CATEGORIES, None), metadata.pop(TEMPLATE_ARGS, None)
    if strange := [kind for kind in metadata if kind not in get_args(Kind)]:
        raise UserError(f"{path} is not a dials file: {strange[0]!r} is neither {' nor '.join(get_args(Kind))}")
    try:
        made_for = MadeFor(fingerprint, cast_fingerprint, template_args and dict(json.loads(template_args)))
        read = None
        if categories is not None:
            about = _CategoryMetadata.model_validate_json(categories)
            weights = tensors[f"{CATEGORIES}.weight"], tensors[f"{CATEGORIES}.bias"]
            read = CategoryRead(about.names, about.locus, *weights, about.confident)
        dials = [
            _dial(cast(Kind, kind), _DialMetadata.model_validate_json(text), tensors, read)
            for kind, text in sorted(metadata.items(), reverse=True)
        ]
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path} is not a dials file: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a dials file: {type(error).__name__}: {error}") from None
    return dials, made_for


class _CategoryMetadata(Record):
    names: tuple[str, ...]
    locus: Locus
    confident: float


class _WriteMetadata(Record):
    name: str
    locus: Locus
    mean_positive: float
    mean_negative: float
    later_means: dict[int, tuple[float, float]] = {}


class _DialMetadata(Record):
    """A dial apart from its vectors; one written before there was a choice is affine, at every step."""

    threshold: float
    band: float
    actuator: ActuatorRecord = ActuatorRecord(name="affine")
    steps: int | None = None
    reread: bool = False
    later: bool = False
    read_at: Locus | None = Field(None, alias="read")
    bias: float | None = None
    C: float | None = None
    slope: float | None = None
    intercept: float | None = None
    written: _WriteMetadata | None = Field(None, alias="write")
    opening: list[_WriteMetadata] = []
    category_thresholds: dict[str, float] | None = None
    answer_tokens: int | None = None  # of the reference


def _metadata(dial: Dial) -> _DialMetadata:
    def written(direction: Direction, *, later: bool = False) -> _WriteMetadata:
        kept = direction if later else replace(direction, later_means={})
        return _WriteMetadata.model_validate(kept, from_attributes=True)

    record = {name: getattr(dial, name) for name in ("threshold", "band", *KEPT)}
    record["actuator"] = actuator_record(dial.actuator)
    if dial.read is not None and dial.probe is not None and dial.calibration is not None:
        record |= {"read": dial.read, "bias": dial.probe.bias, "C": dial.probe.C, **asdict(dial.calibration)}
    if dial.write is not None:
        record["write"] = written(dial.write, later=dial.later)
    if dial.opening:
        record["opening"] = [written(direction) for direction in dial.opening]
    if dial.by_category is not None:
        record["category_thresholds"] = dict(dial.by_category.thresholds)
    if dial.reference is not None:
        record["answer_tokens"] = dial.reference.answer_tokens
    return _DialMetadata.model_validate(record)


def _dial(kind: Kind, metadata: _DialMetadata, tensors: Mapping[str, np.ndarray], read: CategoryRead | None) -> Dial:
    reads = {name: getattr(metadata, name) for name in ("bias", "C", "slope", "intercept")}
    if metadata.read_at is not None and (missing := [name for name, value in reads.items() if value is None]):
        raise ValueError(f"the {kind} dial reads the stream, but {', '.join(missing)} is missing")
    own = metadata.category_thresholds
    if own is not None and read is None:
        raise ValueError(f"the {kind} dial has thresholds by category, but the file has no category read")

    def written(about: _WriteMetadata, name: str) -> Direction:
        return Direction(vector=tensors[f"{kind}.{name}"], **dict(about))

    reference = None
    if metadata.answer_tokens is not None:
        arrays = {part: tensors[f"{kind}.reference.{part}"] for part in REFERENCE}
        reference = Reference(**arrays, answer_tokens=metadata.answer_tokens)
    return Dial(
        kind=kind,
        reference=reference,
        read=metadata.read_at,
        probe=LinearProbe(tensors[f"{kind}.read"], reads["bias"], reads["C"]) if metadata.read_at else None,
        calibration=Platt(reads["slope"], reads["intercept"]) if metadata.read_at else None,
        threshold=metadata.threshold,
        band=metadata.band,
        write=written(metadata.written, "write") if metadata.written else None,
        opening=tuple(written(one, f"opening.{i}") for i, one in enumerate(metadata.opening)),
        actuator=actuator_of(metadata.actuator),
        by_category=CategoryThresholds(read, own) if own is not None and read is not None else None,
        **{name: getattr(metadata, name) for name in KEPT},
    )
