"""Measures interventions on test prompts, onset effects and their null; writes stages/effects.json for judge.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from experiments.dissociation.applicability import DissociationSetup, find_setup
from experiments.dissociation.direction_dependence import dependence
from experiments.dissociation.measured_effects import MeasuredEffects, NullEffects
from experiments.dissociation.onset_null import OnsetEffects, permuted_null
from experiments.dissociation.variant_outcomes import try_variants
from experiments.probing.stage import context_onsets
from experiments.probing.write_directions import write_layers
from experiments.rank.measure import measure_ranks
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.behaviour import KINDS, Kind, write_samples
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, write_outcomes
from experiments.side_effects.measure import side_effects
from experiments.side_effects.results import SideEffects
from extract.model.edit import Edit
from probes.direction import Direction, Locus
from probes.means import unit
from probes.nonlinear_read import NonlinearRead, nonlinear_read
from probes.statistics.seeds import named_rng
from scoring.actions import OPENED
from steering.ablation import ablation, addition


def measure_effects(loaded: LoadedRun) -> None:
    """Write stages/effects.json and the outcomes; neither depends on the margin and the level of the verdict."""
    setup, rows = find_setup(loaded), np.flatnonzero(loaded.corpus.rated & loaded.corpus.within("test"))
    edits = _interventions(loaded, setup)
    outcomes = _outcomes(loaded, rows, edits)
    onset = onset_effects(loaded, setup)
    variants, varied = try_variants(loaded, setup, onset)
    write_outcomes(
        loaded.file("outcomes.parquet/effects.parquet"),
        [prompt.id for prompt in loaded.prompts],
        _with_onsets(loaded, setup, onset, outcomes) | varied,
    )
    unsound, weak = that_miss_rules(setup.directions)
    MeasuredEffects(
        directions=tuple(setup.directions),
        unsound=unsound,
        weak=weak,
        absent=dict(setup.absent),
        reads=_reads(loaded),
        null=_null(loaded, setup, onset),
        variants=tuple(variants),
        dependence=dependence(loaded, setup),
        side_effects=_side_effects(loaded, edits, outcomes),
    ).write(loaded.file("stages/effects.json"))


def that_miss_rules(directions: Mapping[Kind, Direction]) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """Return the directions that miss a selection rule: those that may break the model; those that induce little."""
    missing = [kind for kind, d in directions.items() if not d.provenance.get("meets_selection_rules", False)]
    weak = tuple(kind for kind in missing if directions[kind].provenance.get("misses") == "induce")
    return tuple(kind for kind in missing if kind not in weak), weak


def measure_rank(loaded: LoadedRun) -> None:
    """Write stages/rank.json and rank_directions.safetensors: how many directions each way of declining needs."""
    setup = find_setup(loaded)
    measure_ranks(loaded, setup.directions, setup.absent)


# -- interventions on test prompts -------------------------------------------------------------------------------------


def _interventions(loaded: LoadedRun, setup: DissociationSetup) -> dict[str, list[Edit]]:
    variant = loaded.config.dissociate.variant
    one_layer = replace(variant, layers="selected")
    edits: dict[str, list[Edit]] = {NOTHING: []}
    for kind, direction in setup.directions.items():
        edits[f"ablate_{kind}"] = ablation(direction, variant)
        edits[f"add_{kind}"] = addition(direction, variant)
        edits[f"ablate_random_{kind}"] = ablation(_random_like(loaded, kind, direction.locus), one_layer)
    return edits


def _random_like(loaded: LoadedRun, kind: Kind, locus: Locus) -> Direction:
    """Return an isotropic random direction at a write locus, with class means of the same training prompts."""
    rng = named_rng(loaded.config.seed, "random direction", kind)
    vector = unit(rng.standard_normal(loaded.model.d_model))
    X, behaviour = loaded.write_activations(locus.layer), loaded.behaviour
    declined, answered = behaviour.decliners(kind, "train"), behaviour.answered_benign("train")
    on, off = (float(along.mean()) if len(along) else 0.0 for along in (X[declined] @ vector, X[answered] @ vector))
    return Direction(f"{kind}_random", vector, locus, on, off)


def _outcomes(loaded: LoadedRun, rows: np.ndarray, edits: Mapping[str, list[Edit]]) -> dict[Key, Outcomes]:
    """Return the outcomes of every test prompt under every intervention; NOTHING has the plain completions."""
    under = {name: Setting(placed) for name, placed in edits.items() if name != NOTHING}
    with loaded.reporter.task("interventions on test prompts", len(rows) * len(under)) as advance:
        completed = loaded.completer.complete_each(rows.tolist(), list(under.values()), advance)
    done = {NOTHING: [loaded.completions[row] for row in rows], **dict(zip(under, completed, strict=True))}
    return {(PLAIN, name): Outcomes.completed(rows, each, loaded.prompts) for name, each in done.items()}


def _side_effects(
    loaded: LoadedRun, edits: Mapping[str, list[Edit]], outcomes: Mapping[Key, Outcomes]
) -> dict[str, SideEffects]:
    """Measure the side effects of the ablations."""
    names = [name for name in (NOTHING, *(f"ablate_{kind}" for kind in KINDS)) if name in edits]
    return side_effects(loaded, {name: edits[name] for name in names}, {name: outcomes[PLAIN, name] for name in names})


def _reads(loaded: LoadedRun) -> dict[Kind, NonlinearRead]:
    """Read each behaviour, declined against answered, from the streams at which a direction may be written."""
    layers = [
        k for k in write_layers(loaded.model.n_layers, loaded.config.dissociate.deepest) if k in loaded.store.layers
    ]
    reads: dict[Kind, NonlinearRead] = {}
    for kind in KINDS:
        samples = write_samples(loaded.behaviour, kind)
        if samples is not None:
            streams = [loaded.write_activations(layer)[samples.rows] for layer in layers]
            given = (streams, samples.declined, samples.groups, samples.strata)
            reads[kind] = nonlinear_read(*given, seed=loaded.config.seed)
    return reads


# -- onset log-odds and their null -------------------------------------------------------------------------------------


def onset_effects(loaded: LoadedRun, setup: DissociationSetup) -> OnsetEffects | None:
    """Return the measurement of onset effects on at most `n_onset` decliners of each behaviour; None without any."""
    if not setup.directions or not setup.testable:
        return None
    rng, most = named_rng(loaded.config.seed, "onset decliners"), loaded.config.dissociate.n_onset
    tested = {b: np.sort(rng.permutation(rows)[:most]) for b, rows in setup.testable.items()}
    return OnsetEffects(loaded.model, loaded.rendered, tested, context_onsets(loaded))


def _with_onsets(
    loaded: LoadedRun, setup: DissociationSetup, onset: OnsetEffects | None, outcomes: Mapping[Key, Outcomes]
) -> dict[Key, Outcomes]:
    """Return the outcomes with the onset log-odds of the decliners on which they are measured; inf: not finite."""
    if onset is None:
        return dict(outcomes)
    variant = loaded.config.dissociate.variant
    after = onset.after([ablation(direction, variant) for direction in setup.directions.values()])
    measured = {NOTHING: onset.before}
    measured |= {f"ablate_{kind}": {b: after[b][i] for b in onset.rows} for i, kind in enumerate(setup.directions)}
    with_onsets = dict(outcomes)
    for name, by_behaviour in measured.items():
        before = with_onsets[PLAIN, name]
        log_odds = before.onset.copy()
        for b, rows in onset.rows.items():
            log_odds[np.searchsorted(before.rows, rows)] = np.nan_to_num(by_behaviour[b], nan=np.inf)
        with_onsets[PLAIN, name] = replace(before, onset=log_odds)
    return with_onsets


def _null(loaded: LoadedRun, setup: DissociationSetup, onset: OnsetEffects | None) -> tuple[NullEffects, ...] | None:
    """Draw the null of every direction whose own behaviour can be tested, even if the other's cannot."""
    directions = {kind: d for kind, d in setup.directions.items() if kind in setup.testable}
    if not directions or onset is None:
        return None

    def stopped(behaviour: Kind, direction: Direction) -> float:
        edits = ablation(direction, loaded.config.dissociate.variant)
        did = loaded.completer.actions(onset.rows[behaviour].tolist(), edits=edits)
        return float(np.mean([action in OPENED for action in did]))

    return permuted_null(loaded, directions, onset, context_onsets(loaded), stopped)
