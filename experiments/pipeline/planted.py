"""Cosines between the fitted write directions and those planted in an organism; computed last, used by no verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.probing.write_directions import fit_write
from experiments.report.results import Planted
from experiments.run.behaviour import ACTION_OF, KINDS, Kind, write_samples
from experiments.run.config import ModelConfig
from experiments.run.inputs import RunInputs
from extract.model.adapter import find_adapter
from extract.model.edit import Site
from extract.model.source import resolve
from extract.record import Record
from probes.direction import Locus


class TrueVariable(Record):
    """One planted variable of truth.json."""

    name: str
    decides: tuple[str, ...]
    direction: tuple[float, ...]
    layer: int | None = None  # None in older files: the layer of all


class TrueMechanism(Record):
    """What truth.json says is planted, and where."""

    site: Site
    layer: int
    position: str
    combine: str = "any"
    variables: tuple[TrueVariable, ...]


def grade_planted(inputs: RunInputs) -> Planted | None:
    """Compare write directions at the planted locus with truth.json; None if the model directory has none.

    Called after all verdicts are written: nothing before that reads truth.json.
    """
    try:
        path = _directory(inputs.config.model) / "truth.json"
    except ValueError:
        return None
    if not path.is_file():
        return None
    truth = TrueMechanism.read(path)
    recovered = {f"{kind}_cosine": _recovered(inputs, kind, truth) for kind in KINDS}
    return Planted(**recovered, site=truth.site, layer=truth.layer, position=truth.position)


def _directory(model: ModelConfig) -> Path:
    """Return the directory that may hold the truth: of the adapter, if there is one, or of the model."""
    return find_adapter(model.adapter) if model.adapter else Path(resolve(model.name))


def _recovered(inputs: RunInputs, kind: Kind, truth: TrueMechanism) -> float | None:
    """Return the cosine between the fitted direction and the span of the planted ones; None where none can be fitted.

    The class means of a product do not differ along its factors, so that no direction is to be found there.
    """
    samples, store = write_samples(inputs.behaviour, kind), inputs.store
    planted = _planted(inputs, kind, truth)
    if samples is None or not planted or truth.combine == "xor":
        return None
    layer = truth.layer if planted[0].layer is None else planted[0].layer
    if truth.site != store.site or layer not in store.layers or truth.position not in store.positions:
        return None
    fitted = fit_write(inputs.store.read, Locus(truth.site, layer, truth.position), kind, samples)
    if fitted is None:
        return None
    basis, _ = np.linalg.qr(np.array([variable.direction for variable in planted]).T)
    return float(np.linalg.norm(basis.T @ fitted.vector) / np.linalg.norm(fitted.vector))


def _planted(inputs: RunInputs, kind: Kind, truth: TrueMechanism) -> list[TrueVariable]:
    """Return the planted variables of a behaviour; in a contrast, the one that is named as its way of declining."""
    if ways := inputs.config.prompts.contrast:
        return [variable for variable in truth.variables if variable.name == ways[KINDS.index(kind)]]
    return [variable for variable in truth.variables if ACTION_OF[kind] in variable.decides]
