"""Cosines between the fitted write directions and those planted in an organism; computed last, used by no verdict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments.probing.write_directions import fit_write
from experiments.report.results import Planted
from experiments.run.behaviour import ACTION_OF, KINDS, write_samples
from experiments.run.inputs import RunInputs
from extract.model.source.name import resolve
from probes.direction import Locus
from probes.geometry.angles import cosine


def grade_planted(inputs: RunInputs) -> Planted | None:
    """Compare write directions at the planted locus with truth.json; None if the model directory has none.

    Called after all verdicts are written: nothing before that reads truth.json.
    """
    try:
        path = Path(resolve(inputs.config.model.name)) / "truth.json"
    except ValueError:
        return None
    if not path.is_file():
        return None
    truth = json.loads(path.read_text(encoding="utf-8"))
    recovered: dict[str, float | None] = {f"{kind}_cosine": None for kind in KINDS}
    for kind in KINDS:
        samples = write_samples(inputs.behaviour, kind)
        planted = [v for v in truth["variables"] if ACTION_OF[kind] in v["decides"]]
        if samples is None or not planted or truth["site"] != inputs.store.site:
            continue
        fitted = fit_write(inputs.store.read, Locus(truth["site"], truth["layer"], truth["position"]), kind, samples)
        if fitted is not None:
            recovered[f"{kind}_cosine"] = abs(cosine(fitted.vector, np.array(planted[0]["direction"])))
    return Planted.model_validate(recovered | {key: truth[key] for key in ("site", "layer", "position")})
