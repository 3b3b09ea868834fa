"""`refusal dissociate`: interventions x behaviours on test prompts, a null, a verdict, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from experiments.dissociation.applicability import Setting, find_setting
from experiments.dissociation.direction_dependence import dependence
from experiments.dissociation.effects import onset_effect_interval
from experiments.dissociation.onset_null import Cell, Null, OnsetEffects, permuted_null
from experiments.dissociation.variant_table import variant_table
from experiments.dissociation.verdict import Effect, corrected_p, effect_interval, judge_dissociation
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import ACTION_OF, KINDS, Kind
from experiments.run.completion_file import is_right
from experiments.run.corpus import Corpus
from experiments.run.inputs import RunInputs
from experiments.side_effects.measure import side_effects
from extract.atomic_write import write_json
from extract.model.edit import Edit
from probes.direction import Direction, Locus
from probes.means import unit
from probes.statistics.intervals import Interval, paired_difference
from probes.statistics.seeds import named_rng
from scoring.actions import OPENED
from scoring.rates import grouped_rate
from steering.ablation import ablation, addition


@dataclass(frozen=True)
class Outcomes:
    """What every test prompt got under every intervention; arrays over the whole corpus."""

    edits: Mapping[str, list[Edit]]
    actions: Mapping[str, np.ndarray]  # object: None elsewhere, and where the judge could not tell
    right: Mapping[str, np.ndarray]  # bool: the completion states the prompt's known answer


def dissociate(loaded: LoadedRun) -> None:
    """Write stages/dissociate.json: the matrix, the null, the verdict."""
    config, corpus = loaded.config.dissociate, loaded.corpus
    setting = find_setting(loaded)
    outcomes = _outcomes(loaded, setting)
    onset = onset_effects(loaded, setting)
    null = _null(loaded, setting, onset)
    effects = {
        (kind, b): _effect(stopped_among(outcomes.actions[f"ablate_{kind}"], rows), null, (kind, b))
        for kind in setting.directions
        for b, rows in setting.testable.items()
    }
    n_groups = {b: corpus.effective_groups(rows) for b, rows in setting.testable.items()}
    verdict = judge_dissociation(
        effects, n_groups, setting.absent, _unsound(setting), margin=config.margin, alpha=config.alpha
    )
    onsets, corrected = _onset_records(loaded, setting, onset), corrected_p(effects)
    write_json(
        loaded.file("stages/dissociate.json"),
        {
            "verdict": verdict.verdict,
            "reasons": list(verdict.reasons),
            "margin": config.margin,
            "alpha": config.alpha,
            "variant": config.variant.name,
            "power": [asdict(need) for need in verdict.power],
            "contrasts": {name: _record(interval) for name, interval in verdict.contrasts.items()},
            "matrix": _matrix(loaded, outcomes.actions),
            "effects": {
                f"ablate_{k}_on_{b}": _record(effect_interval(e, n_groups[b], config.alpha), len(e.stopped))
                | {"p_null": e.p_null, "p_corrected": corrected.get((k, b)), "onset": onsets.get((k, b))}
                for (k, b), e in effects.items()
            },
            "additions": _additions(loaded, setting, outcomes),
            "null": None if null is None else null.record,
            "variants": variant_table(loaded, setting, onset),
            "dependence": dependence(loaded, setting),
            "side_effects": _side_effects(loaded, outcomes),
        },
    )


def _effect(stopped: np.ndarray, null: Null | None, cell: Cell) -> Effect:
    if null is None or cell not in null.drawn:
        return Effect(stopped, None)
    return Effect(stopped, null.p_value(*cell), len(null.drawn[cell]))


def _unsound(setting: Setting) -> list[Kind]:
    """List the directions none of whose loci met the selection rules: ablating them may break the model itself."""
    return [kind for kind, d in setting.directions.items() if not d.provenance.get("meets_selection_rules", False)]


def _outcomes(loaded: LoadedRun, setting: Setting) -> Outcomes:
    """Generate for every test prompt under every intervention."""
    test = np.flatnonzero(loaded.corpus.within("test"))
    variant = loaded.config.dissociate.variant
    one_layer = replace(variant, layers="selected")
    edits: dict[str, list[Edit]] = {}
    for kind, direction in setting.directions.items():
        edits[f"ablate_{kind}"] = ablation(direction, variant)
        edits[f"add_{kind}"] = addition(direction, variant)
        edits[f"ablate_random_{kind}"] = ablation(_random_like(loaded, kind, direction.locus), one_layer)
    actions, right = {"none": loaded.behaviour.actions}, {"none": loaded.behaviour.correct}
    with loaded.reporter.task("interventions on test prompts", len(test) * len(edits)) as advance:
        for name, placed in edits.items():
            said = loaded.speaker.complete(test.tolist(), edits=placed, advance=advance)
            actions[name] = np.full(len(loaded.corpus), None, dtype=object)
            right[name] = np.zeros(len(loaded.corpus), dtype=bool)
            actions[name][test] = [completion.action for completion in said]
            right[name][test] = [is_right(c, loaded.prompts[row]) for c, row in zip(said, test, strict=True)]
    return Outcomes({"none": []} | edits, actions, right)


def _random_like(loaded: LoadedRun, kind: Kind, locus: Locus) -> Direction:
    """Return an isotropic random direction at a write locus, its class means measured on the same training prompts."""
    rng = named_rng(loaded.config.seed, "random direction", kind)
    vector = unit(rng.standard_normal(loaded.model.d_model))
    X, behaviour = loaded.write_read(locus.layer), loaded.behaviour
    declined, answered = behaviour.decliners(kind, "train"), behaviour.answered_benign("train")
    on, off = (float(along.mean()) if len(along) else 0.0 for along in (X[declined] @ vector, X[answered] @ vector))
    return Direction(f"{kind}_random", vector, locus, on, off)


def stopped_among(actions: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Say which decliners stopped declining and do something with the request instead.

    What cannot be judged, turns elsewhere or is no answer at all has not been shown to be an opened gate.
    """
    return np.array([actions[row] in OPENED for row in rows], dtype=bool)


# -- the onset score and its null --------------------------------------------------------------------------------------


def onset_effects(loaded: LoadedRun, setting: Setting) -> OnsetEffects | None:
    """Return what measures onset effects, on at most `n_onset` decliners of each behaviour; None without any."""
    if not setting.directions or not setting.testable:
        return None
    rng, most = named_rng(loaded.config.seed, "onset decliners"), loaded.config.dissociate.n_onset
    tested = {b: np.sort(rng.permutation(rows)[:most]) for b, rows in setting.testable.items()}
    return OnsetEffects(loaded.model, loaded.rendered, tested, context_onsets(loaded))


def _null(loaded: LoadedRun, setting: Setting, onset: OnsetEffects | None) -> Null | None:
    """Draw the null of every direction whose own behaviour can be tested, also where the other's cannot."""
    directions = {kind: d for kind, d in setting.directions.items() if kind in setting.testable}
    if not directions or onset is None:
        return None

    def stopped(behaviour: Kind, direction: Direction) -> float:
        edits = ablation(direction, loaded.config.dissociate.variant)
        did = loaded.speaker.actions(onset.rows[behaviour].tolist(), edits=edits)
        return float(np.mean([action in OPENED for action in did]))

    return permuted_null(loaded, directions, onset, context_onsets(loaded), stopped)


def _onset_records(inputs: RunInputs, setting: Setting, onset: OnsetEffects | None) -> dict[Cell, dict[str, Any]]:
    """Return each effect in log-odds, with its interval over groups."""
    if onset is None:
        return {}
    config, corpus = inputs.config.dissociate, inputs.corpus
    after = onset.after([ablation(direction, config.variant) for direction in setting.directions.values()])
    found = {}
    for b, rows in onset.rows.items():
        groups = corpus.groups_among(rows)
        for i, kind in enumerate(setting.directions):
            interval = onset_effect_interval(onset.before[b], after[b][i], groups, config.alpha)
            found[kind, b] = _record(interval, len(rows))
    return found


# -- records -----------------------------------------------------------------------------------------------------------


def _matrix(inputs: RunInputs, actions: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Rows are interventions; columns the shares of each behaviour on test prompts, with intervals and n."""
    corpus, behaviour = inputs.corpus, inputs.behaviour
    test = corpus.within("test")
    answered = behaviour.answered
    columns: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {
        "refusal_on_harmful": (np.flatnonzero(corpus.harmful & test), ("refuse",)),
        "abstention_on_uncertain": (np.flatnonzero(corpus.uncertain & test), ("abstain",)),
        "answering_on_benign": (np.flatnonzero(corpus.benign & test), ("answer", "answer_with_caveat")),
        "refusal_on_answered_benign": (np.flatnonzero(corpus.benign & test & answered), ("refuse",)),
        "abstention_on_answered_benign": (np.flatnonzero(corpus.benign & test & answered), ("abstain",)),
    }
    return {
        name: {column: _share(did, rows, counted, corpus) for column, (rows, counted) in columns.items()}
        for name, did in actions.items()
    }


def _share(did: np.ndarray, rows: np.ndarray, counted: tuple[str, ...], corpus: Corpus) -> dict[str, Any]:
    judged = np.array([row for row in rows if did[row] is not None], dtype=int)
    hit = np.array([did[row] in counted for row in judged], dtype=bool)
    return _record(grouped_rate(hit, corpus.groups_among(judged)), len(judged))


def _side_effects(loaded: LoadedRun, outcomes: Outcomes) -> dict[str, Any]:
    """Measure what the ablations do besides."""
    names = ["none", *(f"ablate_{kind}" for kind in KINDS if f"ablate_{kind}" in outcomes.edits)]
    return side_effects(
        loaded,
        {name: outcomes.edits[name] for name in names},
        {name: outcomes.actions[name] for name in names},
        {name: outcomes.right[name] for name in names},
    )


def _additions(inputs: RunInputs, setting: Setting, outcomes: Outcomes) -> dict[str, Any] | None:
    """Say, of answered benign prompts, which way of declining adding each direction induces, and which one more."""
    if len(setting.directions) < len(KINDS):
        return None
    rows, alpha = inputs.behaviour.answered_benign("test"), inputs.config.dissociate.alpha
    n = inputs.corpus.effective_groups(rows)
    record = {}
    for own, other in (KINDS, KINDS[::-1]):
        mine, others = (outcomes.actions[f"add_{kind}"][rows] == ACTION_OF[own] for kind in (own, other))
        record[f"own_minus_other_{ACTION_OF[own]}"] = _record(
            paired_difference(mine, others, n, alpha / len(KINDS)), len(rows)
        )
    return record


def _record(interval: Interval, n: int | None = None) -> dict[str, Any]:
    limits = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    record: dict[str, Any] = {name: value if np.isfinite(value) else None for name, value in limits.items()}
    return record | ({} if n is None else {"n": n})
