"""A dial: a calibrated read, a threshold, and a write. Values and algebra only; `controller` puts them into a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from extract.errors import UserError
from probes.direction import Direction, Locus
from probes.logistic import LinearProbe, Platt

Kind = Literal["normative", "epistemic"]


@dataclass(frozen=True)
class Dial:
    """One gate of the model: `p(decline) >= threshold` declines, below it permits; a dead band leaves it alone."""

    kind: Kind
    read: Locus
    probe: LinearProbe
    calibration: Platt
    threshold: float
    band: float
    write: Direction

    def probability(self, streams: np.ndarray) -> np.ndarray:
        """Return the calibrated probability of the declining class for (n, d_model) read-locus activations."""
        return self.calibration.probability(self.probe.decision_function(streams))

    def gate(self, probability: np.ndarray, threshold: float | None = None) -> np.ndarray:
        """Return +1 (decline), -1 (permit) or 0 (leave) for each probability."""
        tau = self.threshold if threshold is None else threshold
        return np.where(probability >= tau + self.band, 1, np.where(probability < tau - self.band, -1, 0))

    def target(self, gate: np.ndarray) -> np.ndarray:
        """Return the projection to write for each gate: a class mean, NaN where the stream is left alone."""
        means = {1: self.write.mean_positive, -1: self.write.mean_negative, 0: np.nan}
        return np.array([means[int(g)] for g in gate])


def check_order(dials: Sequence[Dial]) -> None:
    """Refuse dials whose reads do not all come before every write, or at the same place (readers are called first).

    Raises:
        UserError: a read would see what a dial wrote, which would make it circular.
    """
    if not dials:
        return
    latest = max((d.read for d in dials), key=_depth)
    first = min((d.write.locus for d in dials), key=_depth)
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
        tensors[f"{dial.kind}.read"] = dial.probe.weight
        tensors[f"{dial.kind}.write"] = dial.write.vector
        metadata[dial.kind] = json.dumps(_record(dial))
    partial = path.with_name(path.name + ".partial")
    save_file(tensors, partial, metadata=metadata)
    partial.replace(path)


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
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a dials file: {type(error).__name__}: {error}") from None


def _record(dial: Dial) -> dict[str, Any]:
    return {
        "read": vars(dial.read),
        "bias": dial.probe.bias,
        "C": dial.probe.C,
        "slope": dial.calibration.slope,
        "intercept": dial.calibration.intercept,
        "threshold": dial.threshold,
        "band": dial.band,
        "write": {
            "name": dial.write.name,
            "locus": vars(dial.write.locus),
            "mean_positive": dial.write.mean_positive,
            "mean_negative": dial.write.mean_negative,
        },
    }


def _dial(kind: str, record: dict[str, Any], tensors: dict[str, np.ndarray]) -> Dial:
    write = record["write"]
    return Dial(
        kind=kind,  # type: ignore[arg-type]
        read=Locus(**record["read"]),
        probe=LinearProbe(tensors[f"{kind}.read"], record["bias"], record["C"]),
        calibration=Platt(record["slope"], record["intercept"]),
        threshold=record["threshold"],
        band=record["band"],
        write=Direction(
            write["name"],
            tensors[f"{kind}.write"],
            Locus(**write["locus"]),
            write["mean_positive"],
            write["mean_negative"],
        ),
    )
