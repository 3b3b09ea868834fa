"""Effects of trigger word and intent on projections: partial eta squared at every layer and position.

Validation requests set the units and choose the locus. Training requests cannot do this: with more dimensions than
samples, noise alone separates them along the fitted direction (docs/triggers.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.run.inputs import RunInputs
from experiments.triggers.quadruples import Quadruples, quadruples
from experiments.triggers.results import DirectionEffects, FactorialEffect, LocusEffect, Projection, ProjectionRows
from extract.capture_spec import is_generated
from extract.record import NotApplicable, not_applicable
from probes.means import SAME_MEAN, difference_in_means
from probes.statistics.factorial import CONTRASTS, partial_eta
from probes.statistics.intervals import Estimate
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
        least = (int(min(of.sum(), (~of).sum())) for of in (y, judged_by))
        if all(n >= needed for n, needed in zip(least, (MIN_CLASS, MIN_VALIDATION), strict=True)):
            specs.append(DirectionSpec(name, train, y, validation, judged_by))
    return specs


def project(X: Float[np.ndarray, "n_prompts d_model"], spec: DirectionSpec) -> Float[np.ndarray, " n_prompts"] | None:
    """Project on a direction fitted at one locus; None where the validation classes do not differ along it."""
    vector = difference_in_means(X[spec.rows], spec.y)
    if not np.linalg.norm(vector) > SAME_MEAN * np.abs(X[spec.rows]).max():
        return None  # all are equal: a template token of layer 0
    along, y = X @ vector, spec.validation_y
    zero = along[spec.validation[~y]].mean()
    unit = along[spec.validation[y]].mean() - zero
    return np.asarray((along - zero) / unit) if unit > 0 else None  # otherwise it does not generalise


def locus_effects(values: Float[np.ndarray, " n_prompts"], held: Quadruples, seed: int) -> dict[str, FactorialEffect]:
    """Return each effect on the projections at one locus; `held` are the held-out quadruples."""
    cells, effects = held.cell_means(values[held.rows])[..., None], {}
    for effect, which in EFFECTS.items():
        eta = partial_eta(cells, CONTRASTS[which], seed=seed)
        share, low, high, p, shift = (float(of[0]) for of in vars(eta).values())
        effects[effect] = FactorialEffect(partial_eta_squared=Estimate(share, low, high), p=p, shift=shift)
    return effects


def measure_projections(
    inputs: RunInputs,
) -> tuple[ProjectionRows, Projection | NotApplicable, dict[str, Float[np.ndarray, " n_prompts"]]]:
    """Measure the effects at every locus that all requests have, along every direction with enough requests to fit it.

    Returns:
        The effects at every locus; those at each direction's own locus, which has the best d' on validation requests;
        and every prompt's projection there, by direction.
    """
    corpus, store = inputs.corpus, inputs.store
    held = quadruples(corpus, np.flatnonzero(corpus.within(*REPORTED)))
    if not (specs := direction_specs(inputs)):
        needed = f"{MIN_CLASS} training and {MIN_VALIDATION} validation requests of each class"
        lacking = f"a direction needs {needed} (harmful and benign, or refused and answered)"
        return ProjectionRows(rows=(), reason=lacking), not_applicable(lacking), {}
    requests = corpus.requests | corpus.harmful
    positions = [p for i, p in enumerate(store.positions) if not is_generated(p) and store.present[i][requests].all()]
    rows: list[LocusEffect] = []
    best: dict[str, float] = {}
    directions, along = dict[str, DirectionEffects](), dict[str, np.ndarray]()
    with inputs.reporter.task("projecting", len(store.layers) * len(positions)) as advance:
        for layer, position in product(store.layers, positions):
            X = store.read(layer, position).astype(np.float64)
            for spec in specs:
                if (values := project(X, spec)) is None:
                    continue
                effects = locus_effects(values, held, inputs.config.seed) if held.n_groups >= MIN_GROUPS else {}
                at = {"layer": layer, "position": position, "n_groups": held.n_groups}
                rows += [
                    LocusEffect(**dict(of), **at, direction=spec.name, effect=name) for name, of in effects.items()
                ]
                separation = d_prime(spec.validation_y, values[spec.validation])
                if spec.name not in best or separation > best[spec.name]:
                    best[spec.name], along[spec.name] = separation, values
                    directions[spec.name] = DirectionEffects(**at, effects=effects)
            advance(1)
    lacking = ""
    if not best:
        lacking = "at no stored locus does the direction of the training requests separate the validation requests"
    elif not rows:
        few = f"only {held.n_groups} groups outside training and validation hold all four cells"
        lacking = f"{few}; {MIN_GROUPS} are needed"
    projection = not_applicable(lacking) if lacking else Projection(applicable=True, directions=directions)
    return ProjectionRows(rows=tuple(rows), reason=lacking or None), projection, along
