"""Measures interventions on test prompts, onset effects, their null and the directions' dependence, for judge.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from experiments.dissociation.applicability import DissociationSetup, find_setup
from experiments.dissociation.new_thoughts import NewThoughts
from experiments.dissociation.onset_null import OnsetEffects, may_break_more, permuted_null, that_miss_rules
from experiments.dissociation.results import EVERYWHERE, FIXED, CarriedByThought, Dependence, MeasuredEffects
from experiments.dissociation.verdict_rules import other_kind
from experiments.elicited.results import Elicitation
from experiments.probing.results import ProbeResults
from experiments.probing.stage import choose_write, context_onsets
from experiments.probing.write_directions import write_layers
from experiments.rank.measure import measure_ranks
from experiments.responses.batched_edits import Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.behaviour import ACTION_OF, KINDS, Kind, WriteSamples, write_samples
from experiments.run.config import set_at
from experiments.run.corpus import PARTS, TESTED
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, joined, write_outcomes
from experiments.run.tested import tested_rows
from experiments.side_effects.measure import token_costs, wrapped_outcomes
from extract.model.edit import Edit
from probes.direction import Direction, Locus, cosine
from probes.means import difference_in_means, unit
from probes.nonlinear_read import NonlinearRead, nonlinear_read
from probes.statistics.seeds import named_rng
from steering.ablation import ablation, ablation_at_every_layer, addition, covers_layers
from steering.ablation_variant import VARIANTS

N_BOOTSTRAP = 199
NEAR = 0.2  # a cosine whose whole interval is beyond this is called oblique
LEVEL = 0.025  # of each of the two tests under ablation


def measure_effects(loaded: LoadedRun) -> None:
    """Write stages/effects.json and the outcomes; neither depends on the margin and the level of the verdict."""
    setup = find_setup(loaded)
    onset = onset_effects(loaded, setup)
    edits = _interventions(loaded, setup)
    wanted = "one-or-two" in loaded.config.ask
    ablations = {name: edits[name] for name in (NOTHING, *map("ablate_{}".format, setup.directions)) if wanted}
    outcomes = _with_onsets(loaded, setup, onset, _outcomes(loaded, setup, edits))
    outcomes |= _variants(loaded, setup, onset) | wrapped_outcomes(loaded, ablations)
    other_half, of_other_half = _cross_fitted(loaded, setup)
    outcomes = joined([outcomes, other_half])
    write_outcomes(loaded.file("outcomes.parquet/effects.parquet"), [prompt.id for prompt in loaded.prompts], outcomes)
    unsound, weak = that_miss_rules(setup.directions, of_other_half)
    nulled = {kind: d for kind, d in setup.directions.items() if kind in setup.testable}  # even if the other cannot be
    if "epistemic" in setup.absent and Elicitation.succeeded(loaded.file("stages/elicit.json")):
        nulled = {}  # drawn by the stage `elicited`, and measured in its cells too
    null, fixed_null = permuted_null(loaded, nulled, onset) if nulled and onset is not None else ({}, {})
    carried = dict[Kind, CarriedByThought]()
    if onset is not None and loaded.thinks:
        new = NewThoughts(loaded, context_onsets(loaded))
        own = [kind for kind in setup.directions if kind in onset.rows]
        carried = {kind: new.carried(kind, onset.rows[kind], edits[f"ablate_{kind}"]) for kind in own}
    MeasuredEffects(
        directions=tuple(setup.directions),
        parts=PARTS if other_half else TESTED,
        unsound=unsound,
        weak=weak,
        absent=dict(setup.absent),
        reads=_reads(loaded),
        null=null,
        fixed_null=fixed_null,
        dependence=dependence(loaded, setup),
        side_effects=token_costs(loaded, ablations),
        carried=carried,
    ).write(loaded.file("stages/effects.json"))


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
    X, behaviour = loaded.write_activations(locus.layer, set_at(locus.position)), loaded.behaviour
    declined, answered = behaviour.decliners(kind, "train"), behaviour.answered_benign("train")
    on, off = (float(along.mean()) if len(along) else 0.0 for along in (X[declined] @ vector, X[answered] @ vector))
    return Direction(f"{kind}_random", vector, locus, on, off)


def _outcomes(loaded: LoadedRun, setup: DissociationSetup, edits: Mapping[str, list[Edit]]) -> dict[Key, Outcomes]:
    """Return the outcomes of prompts under every intervention; NOTHING has the plain completions of all.

    The effects are judged on decliners, so both ablations have all to be tested, and all test prompts that are not
    answered. Of answered ones they have as many as the side effects need; additions a draw of either, and the control,
    a random direction, of decliners.
    """
    most, under = loaded.config.dissociate.n_side_effects, [name for name in edits if name != NOTHING]
    judged = np.concatenate([np.zeros(0, dtype=int), *setup.testable.values()])
    quotas = {
        "ablate_random": tested_rows(loaded, answered=0, others=most),
        "ablate": np.union1d(tested_rows(loaded, answered=most, others=None), judged),
        "add": tested_rows(loaded, answered=most, others=most),
    }
    rows = [next(own for start, own in quotas.items() if name.startswith(start)) for name in under]
    plain = np.union1d(np.flatnonzero(loaded.corpus.rated & loaded.corpus.within("test")), judged)
    outcomes = {NOTHING: Outcomes.completed(plain, [loaded.completions[row] for row in plain], loaded.prompts)}
    with loaded.reporter.task("interventions on test prompts", sum(map(len, rows))) as advance:
        settings = [Setting(edits[name]) for name in under]
        done = loaded.completer.complete_some([own.tolist() for own in rows], settings, advance)
    for name, own, completions in zip(under, rows, done, strict=True):
        outcomes[name] = Outcomes.completed(own, completions, loaded.prompts)
    return {(PLAIN, name): of for name, of in outcomes.items()}


def _cross_fitted(loaded: LoadedRun, setup: DissociationSetup) -> tuple[dict[Key, Outcomes], dict[Kind, Direction]]:
    """Return the outcomes of decliners that the directions were fitted or chosen on, under the other half's, and these.

    So every decliner is tested, and none under a direction that has seen it. The null is that of the run's own
    directions alone. Empty where these came from a file, or the other half does not give all of them, or some that may
    break the model.
    """
    if not setup.testable or loaded.config.dissociate.directions is not None:
        return {}, {}
    completer, variant = loaded.completer, loaded.config.dissociate.variant  # of a model opened before the copy
    mirrored = loaded.mirrored
    onsets, chosen = context_onsets(mirrored), dict[Kind, Direction]()
    for kind, own in setup.directions.items():
        screened = bool(own.provenance.get("screened"))
        if direction := choose_write(mirrored, kind, onsets, screened).chosen:
            chosen[kind] = direction
    rows = np.sort(np.concatenate([mirrored.behaviour.decliners(kind, *TESTED) for kind in setup.testable]))
    if len(chosen) < len(setup.directions) or not len(rows) or may_break_more(chosen, setup.directions):
        return {}, {}
    edits = {(PLAIN, f"ablate_{kind}"): ablation(direction, variant) for kind, direction in chosen.items()}
    with loaded.reporter.task("declines of the other half", len(rows) * len(edits)) as advance:
        return completer.outcomes(rows, edits, advance), chosen


def _variants(loaded: LoadedRun, setup: DissociationSetup, onset: OnsetEffects | None) -> dict[Key, Outcomes]:
    """Return the outcomes of each variant of ablation, a condition, on the decliners of onset effects and benign ones.

    Ablating to zero a direction whose benign projection is not near zero can make benign prompts refuse (METHODS). An
    effect at all later layers that one layer does not have shows that the decision is computed again. One variant alone
    shows neither.
    """
    if onset is None or not loaded.config.dissociate.variants:
        return {}
    rng, most = named_rng(loaded.config.seed, "ablation variants"), loaded.config.dissociate.n_onset
    benign = rng.permutation(loaded.behaviour.answered_benign("test"))[:most]
    rows = np.sort(np.concatenate([benign, *onset.rows.values()]))
    n_layers, trials = loaded.model.n_layers, dict[Key, list[Edit]]()
    for kind, d in setup.directions.items():
        trials |= {(v.name, f"ablate_{kind}"): ablation(d, v) for v in VARIANTS if covers_layers(d, v, n_layers)}
        trials[EVERYWHERE, f"ablate_{kind}"] = ablation_at_every_layer(d, n_layers)
    with loaded.reporter.task("other ways of ablating", len(trials) * len(rows)) as advance:
        outcomes = loaded.completer.outcomes(rows, trials, advance)
    for (name, ablated), edits in trials.items():
        # the last edits the prompts, which the scorer caches; of a model that thinks effects are after new thoughts
        if name != EVERYWHERE and not loaded.thinks:
            after = {b: values[0] for b, values in onset.after([edits]).items()}
            outcomes[name, ablated] = _scored(outcomes[name, ablated], onset, after)
    return outcomes


def _reads(loaded: LoadedRun) -> dict[Kind, NonlinearRead]:
    """Read each behaviour, declined against answered, from the streams at which a direction may be written."""
    deepest, reads = loaded.config.dissociate.deepest, dict[Kind, NonlinearRead]()
    layers = [layer for layer in write_layers(loaded.model.n_layers, deepest) if layer in loaded.store.layers]
    for kind in KINDS:
        if (of := write_samples(loaded.behaviour, kind)) is not None:
            streams = [loaded.write_activations(layer)[of.rows] for layer in layers]
            reads[kind] = nonlinear_read(streams, of.declined, of.groups, of.strata, seed=loaded.config.seed)
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
    """Return the outcomes with the onset log-odds of the decliners on which they are measured.

    Of a model that thinks they are those after the thought that it has under each ablation, and, with those after its
    plain thought, a condition is added in which a decline stops where those of either kind are not likelier than not.
    """
    scored = dict(outcomes)
    if onset is None:
        return scored
    trials = [ablation(direction, loaded.config.dissociate.variant) for direction in setup.directions.values()]
    scored[PLAIN, NOTHING], after = _scored(outcomes[PLAIN, NOTHING], onset, onset.before), onset.after(trials)
    if loaded.thinks:
        new, fixed = NewThoughts(loaded, context_onsets(loaded)), after
        after = {b: new.after_own(b, rows, trials) for b, rows in onset.rows.items()}
        for i, kind in enumerate(setup.directions):
            kept = [_kept(onset, b, fixed[b][i], trials[i]) for b in onset.rows]
            scored |= joined([{(FIXED, f"ablate_{kind}"): of} for of in kept])
    for i, kind in enumerate(setup.directions):
        key = PLAIN, f"ablate_{kind}"
        scored[key] = _scored(outcomes[key], onset, {b: values[i] for b, values in after.items()})
    return scored


def _kept(onset: OnsetEffects, kind: Kind, own: Float[np.ndarray, " rows"], edits: Trial) -> Outcomes:
    """Return what decliners become with their plain thought, by log-odds of declining in their own way and in any.

    Of those that decline by openings that are known: plainly they are likelier than not.
    """
    likely, either = onset.either(kind, []) >= 0, onset.either(kind, edits)
    declines = [ACTION_OF[kind] if odds >= 0 else ACTION_OF[other_kind(kind)] for odds in own]
    action = ["answer" if odds < 0 else declined for odds, declined in zip(either, declines, strict=True)]
    of = replace(Outcomes.of(onset.rows[kind], action), onset=np.nan_to_num(own, nan=np.inf))
    return of.among(onset.rows[kind][likely])


def _scored(
    outcomes: Outcomes, onset: OnsetEffects, log_odds: Mapping[Kind, Float[np.ndarray, " decliners"]]
) -> Outcomes:
    """Return outcomes with each behaviour's log-odds; inf: not finite."""
    all_of = outcomes.onset.copy()
    for b, rows in onset.rows.items():
        all_of[np.searchsorted(outcomes.rows, rows)] = np.nan_to_num(log_odds[b], nan=np.inf)
    return replace(outcomes, onset=all_of)


# -- dependence of the two directions ----------------------------------------------------------------------------------


def dependence(inputs: RunInputs, setup: DissociationSetup) -> Dependence | None:
    """Measure the dependence of the two write directions; None if there are not two.

    The verdict does not use it: oblique directions may decide separately, and orthogonal ones may be one shared knob
    (arXiv 2602.02132). The cosine is taken at the normative direction's locus, where the epistemic direction is fitted
    again, because a cosine between layers has no meaning. Its interval is a bootstrap over groups of training prompts.
    The change that ablating one direction makes to the stream along the other is compared with its null (arXiv
    2502.17420).
    """
    samples = [found for kind in KINDS if (found := write_samples(inputs.behaviour, kind)) is not None]
    if len(setup.directions) < len(KINDS) or len(samples) < len(KINDS):
        return None
    locus = setup.directions["normative"].locus
    cosines = _cosines(inputs, locus, samples)
    low, high = (float(q) for q in np.quantile(cosines[1:], [0.025, 0.975]))
    own = inputs.config.dissociate.directions is None  # the probe stage measured the run's own directions only
    probed = ProbeResults.read(inputs.file("stages/probe.json")) if own else ProbeResults()
    under_ablation = probed.geometry.independence or {}
    moved = tuple(name for name, change in under_ablation.items() if (change.projection.p_null or 1.0) <= LEVEL)
    oblique = bool(low > NEAR or high < -NEAR)
    return Dependence(
        dependent=bool(oblique or moved),
        cosine=float(cosines[0]),
        cosine_ci=(low, high),
        locus=locus,
        oblique=oblique,
        moved_under_ablation=moved,
        ablation_measured=bool(under_ablation),
    )


def _cosines(inputs: RunInputs, locus: Locus, samples: list[WriteSamples]) -> np.ndarray:
    """Return the cosine of the fitted directions, then those of bootstrap draws; (1 + N_BOOTSTRAP,) or fewer."""
    corpus, rng = inputs.corpus, named_rng(inputs.config.seed, "direction dependence")
    X = inputs.store.read(locus.layer, locus.position).astype(np.float64)
    members = [
        {group: np.flatnonzero(corpus.groups[of.rows] == group) for group in np.unique(corpus.groups[of.rows])}
        for of in samples
    ]

    def fitted(of: WriteSamples, by_group: Mapping[int, np.ndarray], groups: np.ndarray) -> np.ndarray | None:
        index = np.concatenate([by_group.get(group, np.empty(0, dtype=int)) for group in groups])
        y = of.declined[index]
        return difference_in_means(X[of.rows[index]], y, of.strata[index]) if y.any() and not y.all() else None

    groups = np.unique(np.concatenate([corpus.groups[of.rows] for of in samples]))
    draws = [groups, *(rng.choice(groups, size=len(groups)) for _ in range(N_BOOTSTRAP))]
    pairs = [[fitted(of, own, drawn) for of, own in zip(samples, members, strict=True)] for drawn in draws]
    return np.array([cosine(a, b) for a, b in pairs if a is not None and b is not None])
