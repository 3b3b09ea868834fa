"""A dial: a calibrated read, a threshold, and a write. Values and algebra only; `controller` puts them into a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from extract.atomic_write import atomic_path
from extract.errors import UserError
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.actuator import Actuator, Affine, OnsetBias, actuator_of, actuator_record
from steering.writer import Writer

Kind = Literal["normative", "epistemic"]


@dataclass(frozen=True)
class Dial:
    """One gate of the model: `p(decline) >= threshold` declines, below it permits; a dead band leaves it alone.

    It reads with a probe at a locus, or, where `read`, `probe` and `calibration` are None, the model's own probability
    of its actuator's onset prefixes. It writes along a direction, or, where `write` is None, by an onset bias.

    Args:
        steps: how many steps it writes at: 1 is the prefill only, k is until an onset of k tokens is past, None is
            every step. The prefill writes at the last prompt token, each later step at the token it has said.
        later: write at later layers too, those that `write` has class means of.
        reread: read again at every token said, and decide there what is written at it.

    Raises:
        ValueError: the parts do not go together.
    """

    kind: Kind
    read: Locus | None
    probe: LinearProbe | None
    calibration: Platt | None
    threshold: float
    band: float
    write: Direction | None
    actuator: Actuator = field(default_factory=Affine)
    steps: int | None = None
    reread: bool = False
    later: bool = False

    def __post_init__(self) -> None:
        biased = isinstance(self.actuator, OnsetBias)
        reads = {part is not None for part in (self.read, self.probe, self.calibration)}
        if len(reads) > 1:
            raise ValueError("a dial that reads the stream has a locus, a probe and a calibration: give all or none")
        _ = self.writer  # checks what it writes
        if self.read is None and not biased:
            raise ValueError("a dial without a probe reads its onset prefixes: its actuator must be an onset bias")
        if self.reread and (biased or self.steps == 1):
            raise ValueError("a dial that reads again at each token must write at tokens said, into the stream")

    @property
    def writer(self) -> Writer:
        """What its gate does."""
        return Writer(self.write, self.actuator, self.steps, self.later)

    def probability(self, streams: np.ndarray) -> np.ndarray:
        """Return the calibrated probability of the declining class for (n, d_model) read-locus activations."""
        if self.probe is None or self.calibration is None:
            raise ValueError(f"the {self.kind} dial reads its onset prefixes, not the stream")
        return self.calibration.probability(self.probe.decision_function(streams))

    def gate(self, probability: np.ndarray, threshold: float | np.ndarray | None = None) -> np.ndarray:
        """Return its gates, by its own threshold where none is given; see `gate`."""
        return gate(probability, self.threshold if threshold is None else threshold, self.band)


def gate(probability: np.ndarray, threshold: float | np.ndarray, band: float) -> np.ndarray:
    """Return +1 (decline), -1 (permit) or 0 (leave, in the dead band) for each probability; a NaN threshold leaves."""
    return np.where(probability >= threshold + band, 1, np.where(probability < threshold - band, -1, 0))


def check_order(dials: Sequence[Dial]) -> None:
    """Refuse dials whose reads do not all come before every write, or at the same place (readers are called first).

    Raises:
        UserError: a read would see what a dial wrote, which would make it circular.
    """
    reads = [dial.read for dial in dials if dial.read is not None]
    writes = [dial.write.locus for dial in dials if dial.write is not None]
    if not reads or not writes:
        return
    latest, first = max(reads, key=_depth), min(writes, key=_depth)
    if _depth(latest) > _depth(first):
        raise UserError(
            f"a dial reads {latest.site} at layer {latest.layer} but one writes {first.site} at layer {first.layer}: "
            "reads must come before writes"
        )


def _depth(locus: Locus) -> tuple[int, bool]:
    return locus.layer, locus.site != "resid_pre"


def save_dials(dials: Sequence[Dial], path: Path, fingerprint: str) -> None:
    """Write dials to one safetensors file with JSON metadata, tied to the model's weight fingerprint."""
    tensors, metadata = {}, {"fingerprint": fingerprint}
    for dial in dials:
        if dial.probe is not None:
            tensors[f"{dial.kind}.read"] = dial.probe.weight
        if dial.write is not None:
            tensors[f"{dial.kind}.write"] = dial.write.vector
        metadata[dial.kind] = json.dumps(_record(dial))
    with atomic_path(path) as partial:
        save_file(tensors, partial, metadata=metadata)


def load_dials(path: Path, fingerprint: str) -> list[Dial]:
    """Read dials for a model.

    Raises:
        UserError: the file is missing or unreadable, or belongs to a model with other weights.
    """
    if not path.is_file():
        raise UserError(f"dials file not found: {path}; make it with: refusal steer CONFIG")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except Exception as error:  # safetensors raises its own exception class for any malformed file
        raise UserError(f"{path} is not a dials file: {error}") from None
    found = metadata.pop("fingerprint", None)
    if found is None:
        raise UserError(f"{path} is not a dials file: it has no fingerprint of the model it is for")
    if found != fingerprint:
        raise UserError(
            f"{path} was made for other weights (fingerprint {found[:12]}…, this model {fingerprint[:12]}…)"
        )
    if strange := [kind for kind in metadata if kind not in get_args(Kind)]:
        raise UserError(f"{path} is not a dials file: {strange[0]!r} is neither {' nor '.join(get_args(Kind))}")
    try:
        return [_dial(kind, json.loads(text), tensors) for kind, text in sorted(metadata.items(), reverse=True)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a dials file: {type(error).__name__}: {error}") from None


def _record(dial: Dial) -> dict[str, Any]:
    record: dict[str, Any] = {
        "threshold": dial.threshold,
        "band": dial.band,
        "actuator": actuator_record(dial.actuator),
        "steps": dial.steps,
        "reread": dial.reread,
        "later": dial.later,
    }
    if dial.read is not None and dial.probe is not None and dial.calibration is not None:
        record |= {
            "read": vars(dial.read),
            "bias": dial.probe.bias,
            "C": dial.probe.C,
            "slope": dial.calibration.slope,
            "intercept": dial.calibration.intercept,
        }
    if dial.write is not None:
        record["write"] = {
            "name": dial.write.name,
            "locus": vars(dial.write.locus),
            "mean_positive": dial.write.mean_positive,
            "mean_negative": dial.write.mean_negative,
            "later_means": dict(dial.write.later_means) if dial.later else {},
        }
    return record


def _dial(kind: str, record: dict[str, Any], tensors: dict[str, np.ndarray]) -> Dial:
    """Make a dial of its record; one written before there was a choice is affine, at every step."""
    reads, write = "read" in record, record.get("write")
    return Dial(
        kind=kind,  # type: ignore[arg-type]
        read=Locus(**record["read"]) if reads else None,
        probe=LinearProbe(tensors[f"{kind}.read"], record["bias"], record["C"]) if reads else None,
        calibration=Platt(record["slope"], record["intercept"]) if reads else None,
        threshold=record["threshold"],
        band=record["band"],
        write=None if write is None else Direction(
            write["name"],
            tensors[f"{kind}.write"],
            Locus(**write["locus"]),
            write["mean_positive"],
            write["mean_negative"],
            later_means={int(layer): (on, off) for layer, (on, off) in write.get("later_means", {}).items()},
        ),
        actuator=actuator_of(record["actuator"]) if "actuator" in record else Affine(),
        steps=record.get("steps"),
        reread=record.get("reread", False),
        later=record.get("later", False),
    )  # fmt: skip
