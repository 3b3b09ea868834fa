"""What the trigger word and the intent do to the residual stream: partial eta squared at every layer and position.

Two directions are looked along, each the difference in means of training requests at its own locus: `refusing`
(refused against answered, whatever was meant) and `harmfulness` (harmful against benign, whatever was done); the two
are encoded apart (arXiv 2507.11878). Validation requests set the units, 0 at the mean of the negative class and 1 at
that of the positive one, and choose the locus. They must be others than those the direction is fitted on: with more
dimensions than samples these lie far apart along it by noise alone. Quadruples of the parts left are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.run.inputs import RunInputs
from experiments.triggers.quadruples import Quadruples, quadruples
from probes.means import ALIKE, difference_in_means
from probes.statistics.factorial import CONTRASTS, partial_eta
from probes.statistics.metrics import d_prime

EFFECTS = {"trigger": "first", "intent": "second", "interaction": "interaction"}
MIN_CLASS = 10  # training requests of each class before a direction is fitted
MIN_VALIDATION = 5  # validation requests of each class, which set its units
MIN_GROUPS = 6  # reported groups that hold all four cells: with fewer, sign flips cannot reach p = 0.05
REPORTED = ("calibration", "test")


@dataclass(frozen=True)
class Looking:
    """Which requests a direction is fitted on, and which of them are of its positive class."""

    name: str
    rows: np.ndarray  # training requests
    y: np.ndarray  # bool, one a row
    validation: np.ndarray  # rows on which a locus is chosen
    validation_y: np.ndarray


@dataclass(frozen=True)
class Projected:
    """Every prompt's projection at one locus, in units of the distance between the validation means."""

    name: str
    layer: int
    position: str
    values: np.ndarray  # (n_prompts,); of no meaning for other prompts than requests, which may lack the position
    separation: float  # d' on validation requests


def lookings(inputs: RunInputs) -> list[Looking]:
    """Return the directions that there are requests enough to fit."""
    corpus, refused = inputs.corpus, inputs.behaviour.did("refuse")
    requests = corpus.requests | corpus.harmful
    decided = requests & (refused | inputs.behaviour.answered)
    asked = {"refusing": (decided, refused), "harmfulness": (requests, corpus.harmful)}
    found = []
    for name, (among, positive) in asked.items():
        train, validation = (np.flatnonzero(among & corpus.within(part)) for part in ("train", "validation"))
        y, judged_by = positive[train], positive[validation]
        if _least(y) >= MIN_CLASS and _least(judged_by) >= MIN_VALIDATION:
            found.append(Looking(name, train, y, validation, judged_by))
    return found


def projections(inputs: RunInputs, looking: Sequence[Looking]) -> Iterator[Projected]:
    """Project all prompts along each direction at every locus that all requests have; one locus is held at a time."""
    store, requests = inputs.store, inputs.corpus.requests | inputs.corpus.harmful
    positions = [
        p for i, p in enumerate(store.positions) if not p.startswith("response_") and store.present[i][requests].all()
    ]
    with inputs.reporter.task("projecting", len(store.layers) * len(positions)) as advance:
        for layer in store.layers:
            for position in positions:
                X = store.read(layer, position).astype(np.float64)
                for one in looking:
                    if (values := _along(X, one)) is not None:
                        separation = d_prime(one.validation_y, values[one.validation])
                        yield Projected(one.name, layer, position, values, separation)
                advance(1)


def _along(X: np.ndarray, looking: Looking) -> np.ndarray | None:
    vector = difference_in_means(X[looking.rows], looking.y)
    if not np.linalg.norm(vector) > ALIKE * np.abs(X[looking.rows]).max():
        return None  # all alike: a template token of layer 0
    along, y = X @ vector, looking.validation_y
    zero = along[looking.validation[~y]].mean()
    unit = along[looking.validation[y]].mean() - zero
    return np.asarray((along - zero) / unit) if unit > 0 else None  # else it tells nothing of other requests


def _least(y: np.ndarray) -> int:
    return int(min(y.sum(), (~y).sum()))


def eta_rows(projected: Projected, held: Quadruples, seed: int) -> list[dict[str, Any]]:
    """Return a row for each effect at one locus; `held` are the quadruples that are reported."""
    cells = held.cell_means(projected.values[held.rows])[..., None]
    rows = []
    for effect, which in EFFECTS.items():
        found = partial_eta(cells, CONTRASTS[which], seed=seed)
        rows.append(
            {
                "direction": projected.name, "layer": projected.layer, "position": projected.position,
                "effect": effect, "partial_eta_squared": float(found.estimate[0]), "low": float(found.low[0]),
                "high": float(found.high[0]), "p": float(found.p[0]), "shift": float(found.mean[0]),
                "n_groups": held.n_groups,
            }
        )  # fmt: skip
    return rows


def measure_projections(inputs: RunInputs) -> tuple[list[dict[str, Any]], dict[str, Projected], str | None]:
    """Return the rows of all loci, the best locus of each direction (by d' on validation), and why there are none."""
    held = quadruples(inputs.corpus, np.flatnonzero(inputs.corpus.within(*REPORTED)))
    looking = lookings(inputs)
    if not looking:
        needed = f"{MIN_CLASS} training and {MIN_VALIDATION} validation requests of each class"
        return [], {}, f"a direction needs {needed} (harmful and benign, or refused and answered)"
    rows: list[dict[str, Any]] = []
    best: dict[str, Projected] = {}
    for projected in projections(inputs, looking):
        if held.n_groups >= MIN_GROUPS:
            rows += eta_rows(projected, held, inputs.config.seed)
        before = best.get(projected.name)
        if before is None or projected.separation > before.separation:
            best[projected.name] = projected
    if not best:
        return (
            [],
            {},
            "at no stored locus do the classes differ in validation requests as in training ones",
        )
    few = f"only {held.n_groups} groups outside training and validation hold all four cells; {MIN_GROUPS} are needed"
    return rows, best, None if rows else few
