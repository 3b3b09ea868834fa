"""Every other way of ablating, beside the one the verdict rests on: what it stops, and what it does to benign prompts.

Zero-ablating a direction whose benign projection is not near zero can make benign prompts refuse (METHODS); an effect
at all later layers that one layer lacks says that the decision is computed again. Neither is seen in one variant alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.dissociation.applicability import Setting
from experiments.dissociation.onset_null import OnsetEffects
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from extract.model.edit import Edit
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from scoring.actions import ANSWERED, OPENED
from scoring.rates import grouped_rate
from steering.ablation import ablation, everywhere, reaches
from steering.ablation_variant import VARIANTS

EVERYWHERE = "zero/every/all"


def variant_table(loaded: LoadedRun, setting: Setting, onset: OnsetEffects | None) -> list[dict[str, Any]]:
    """Measure each variant on the decliners that onset effects are measured on, and as many answered benign prompts."""
    if onset is None or not loaded.config.dissociate.variants:
        return []
    trials = [(kind, *trial) for kind, d in setting.directions.items() for trial in _trials(d, loaded.model.n_layers)]
    rng, most = named_rng(loaded.config.seed, "ablation variants"), loaded.config.dissociate.n_onset
    benign = np.sort(rng.permutation(loaded.behaviour.answered_benign("test"))[:most])
    n_rows = len(benign) + sum(map(len, onset.rows.values()))
    with loaded.reporter.task("other ways of ablating", len(trials) * n_rows) as advance:
        table = []
        for kind, name, edits in trials:
            table.append(_row(loaded, kind, name, edits, onset, benign))
            advance(n_rows)
    return table


def _trials(direction: Direction, n_layers: int) -> Iterator[tuple[str, list[Edit]]]:
    for variant in VARIANTS:
        if reaches(direction, variant, n_layers):
            yield variant.name, ablation(direction, variant)
    yield EVERYWHERE, everywhere(direction, n_layers)


def _row(
    loaded: LoadedRun, kind: Kind, name: str, edits: list[Edit], onset: OnsetEffects, benign: np.ndarray
) -> dict[str, Any]:
    falls = None if name == EVERYWHERE else onset.falls([edits])  # onset scores remember prompts that this edits
    record: dict[str, Any] = {"ablated": kind, "variant": name, "stopped": {}, "onset_effect": {}}
    for behaviour, rows in onset.rows.items():
        record["stopped"][behaviour] = _share(loaded, rows, edits, OPENED)
        record["onset_effect"][behaviour] = None if falls is None else float(falls[behaviour][0])
    return record | {"benign_answered": _share(loaded, benign, edits, ANSWERED)}


def _share(loaded: LoadedRun, rows: np.ndarray, edits: list[Edit], counted: frozenset[Any]) -> dict[str, Any] | None:
    """Return the share of prompts whose completion counts, None where there are none; unjudged ones do not count."""
    if not len(rows):
        return None
    hit = np.array([action in counted for action in loaded.speaker.actions(rows.tolist(), edits=edits)], dtype=bool)
    rate = grouped_rate(hit, loaded.corpus.groups_among(rows), loaded.config.dissociate.alpha)
    return {"estimate": rate.estimate, "low": rate.low, "high": rate.high, "n": len(rows)}
