"""Effects of trigger word and intent on projections: partial eta squared at every layer and position.

Two directions are used, each a difference in means of training requests at its own locus: `refusing` (refused against
answered, of either intent) and `harmfulness` (harmful against benign, refused or not); models encode the two separately
(arXiv 2507.11878). Validation requests set the units (0 is the mean of the negative class, 1 that of the positive one)
and choose the locus. Training requests cannot do this: with more dimensions than samples, noise alone separates them
along the fitted direction. Effects are reported on quadruples of the remaining parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.run.inputs import RunInputs
from experiments.triggers.quadruples import Quadruples, quadruples
from experiments.triggers.results import DirectionEffects, FactorialEffect, LocusEffect, Projection, ProjectionRows
from extract.record import NotApplicable, not_applicable
from probes.means import SAME_MEAN, difference_in_means
from probes.statistics.factorial import CONTRASTS, partial_eta
from probes.statistics.metrics import d_prime

EFFECTS = {"trigger": "first", "intent": "second", "interaction": "interaction"}
MIN_CLASS = 10  # training requests of each class before a direction is fitted
MIN_VALIDATION = 5  # validation requests of each class, which set the units
MIN_GROUPS = 6  # complete quadruple groups that are reported: with fewer, sign flips cannot reach p = 0.05
REPORTED = ("calibration", "test")


@dataclass(frozen=True)
class DirectionSpec:
    """The requests that a direction is fitted on, with their classes."""

    name: str
    rows: Int[np.ndarray, " n_train"]  # training requests
    y: Bool[np.ndarray, " n_train"]
    validation: Int[np.ndarray, " n_validation"]  # rows on which a locus is chosen
    validation_y: Bool[np.ndarray, " n_validation"]


@dataclass(frozen=True)
class LocusProjection:
    """Every prompt's projection at one locus, in units of the distance between the validation means."""

    name: str
    layer: int
    position: str
    values: Float[np.ndarray, " n_prompts"]  # meaningful for requests only; other prompts may lack the position
    separation: float  # d' on validation requests


def direction_specs(inputs: RunInputs) -> list[DirectionSpec]:
    """Return the directions that have enough requests to be fitted."""
    corpus, refused = inputs.corpus, inputs.behaviour.did("refuse")
    requests = corpus.requests | corpus.harmful
    decided = requests & (refused | inputs.behaviour.answered)
    asked = {"refusing": (decided, refused), "harmfulness": (requests, corpus.harmful)}
    specs = []
    for name, (among, positive) in asked.items():
        train, validation = (np.flatnonzero(among & corpus.within(part)) for part in ("train", "validation"))
        y, judged_by = positive[train], positive[validation]
        if _least(y) >= MIN_CLASS and _least(judged_by) >= MIN_VALIDATION:
            specs.append(DirectionSpec(name, train, y, validation, judged_by))
    return specs


def projections(inputs: RunInputs, specs: Sequence[DirectionSpec]) -> Iterator[LocusProjection]:
    """Yield all prompts' projections on each direction, at every locus that all requests have, one locus at a time."""
    store, requests = inputs.store, inputs.corpus.requests | inputs.corpus.harmful
    positions = [
        p for i, p in enumerate(store.positions) if not p.startswith("response_") and store.present[i][requests].all()
    ]
    with inputs.reporter.task("projecting", len(store.layers) * len(positions)) as advance:
        for layer in store.layers:
            for position in positions:
                X = store.read(layer, position).astype(np.float64)
                for spec in specs:
                    if (values := project(X, spec)) is not None:
                        separation = d_prime(spec.validation_y, values[spec.validation])
                        yield LocusProjection(spec.name, layer, position, values, separation)
                advance(1)


def project(X: Float[np.ndarray, "n_prompts d_model"], spec: DirectionSpec) -> Float[np.ndarray, " n_prompts"] | None:
    """Project on a direction fitted at one locus; None where the validation classes do not differ along it."""
    vector = difference_in_means(X[spec.rows], spec.y)
    if not np.linalg.norm(vector) > SAME_MEAN * np.abs(X[spec.rows]).max():
        return None  # all are equal: a template token of layer 0
    along, y = X @ vector, spec.validation_y
    zero = along[spec.validation[~y]].mean()
    unit = along[spec.validation[y]].mean() - zero
    return np.asarray((along - zero) / unit) if unit > 0 else None  # otherwise it does not generalise


def _least(y: np.ndarray) -> int:
    return int(min(y.sum(), (~y).sum()))


def locus_effects(projection: LocusProjection, held: Quadruples, seed: int) -> dict[str, FactorialEffect]:
    """Return each effect at one locus; `held` are the held-out quadruples."""
    cells = held.cell_means(projection.values[held.rows])[..., None]
    effects = {}
    for effect, which in EFFECTS.items():
        eta = partial_eta(cells, CONTRASTS[which], seed=seed)
        low, high = float(eta.low[0]), float(eta.high[0])
        share, p, shift = float(eta.estimate[0]), float(eta.p[0]), float(eta.mean[0])
        effects[effect] = FactorialEffect(partial_eta_squared=share, low=low, high=high, p=p, shift=shift)
    return effects


def measure_projections(
    inputs: RunInputs,
) -> tuple[ProjectionRows, Projection | NotApplicable, dict[str, Float[np.ndarray, " n_prompts"]]]:
    """Measure the effects at every locus along every direction that has enough requests to be fitted.

    Returns:
        The effects at every locus; those at each direction's own locus, which has the best d' on validation requests;
        and every prompt's projection there, by direction.
    """
    held = quadruples(inputs.corpus, np.flatnonzero(inputs.corpus.within(*REPORTED)))
    rows: list[LocusEffect] = []
    best: dict[str, tuple[LocusProjection, dict[str, FactorialEffect]]] = {}
    specs = direction_specs(inputs)
    for at in projections(inputs, specs) if specs else ():
        effects = locus_effects(at, held, inputs.config.seed) if held.n_groups >= MIN_GROUPS else {}
        locus = {"direction": at.name, "layer": at.layer, "position": at.position, "n_groups": held.n_groups}
        rows += [LocusEffect(**dict(effect), **locus, effect=name) for name, effect in effects.items()]
        if at.name not in best or at.separation > best[at.name][0].separation:
            best[at.name] = at, effects
    lacking = None
    if not specs:
        needed = f"{MIN_CLASS} training and {MIN_VALIDATION} validation requests of each class"
        lacking = f"a direction needs {needed} (harmful and benign, or refused and answered)"
    elif not best:
        lacking = "at no stored locus does the direction of the training requests separate the validation requests"
    elif not rows:
        few = f"only {held.n_groups} groups outside training and validation hold all four cells"
        lacking = f"{few}; {MIN_GROUPS} are needed"
    directions = {
        name: DirectionEffects(layer=at.layer, position=at.position, n_groups=held.n_groups, effects=effects)
        for name, (at, effects) in best.items()
    }
    projection = not_applicable(lacking) if lacking else Projection(applicable=True, directions=directions)
    values = {name: at.values for name, (at, _) in best.items()}
    return ProjectionRows(rows=tuple(rows), reason=lacking), projection, values
