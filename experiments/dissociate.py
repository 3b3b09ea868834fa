"""`refusal dissociate`: interventions x behaviours on test prompts, a null, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.behaviour import ACTION_OF, KINDS, MIN_BASELINE, Kind, write_samples
from experiments.context import Context
from experiments.manifest import write_json
from experiments.onset import Onsets, OnsetScorer
from experiments.probing import context_onsets, write_fitter
from experiments.scoring import grouped_rate
from experiments.verdict import Effect, effect_interval, judge_dissociation
from experiments.writing import ablation, addition, permuted
from extract.edit import Edit
from probes.direction import Direction, Locus, load_directions
from probes.intervals import Interval
from probes.means import unit

OPENED = frozenset({"answer", "answer_with_caveat", "clarify", "answer_safe_part"})
OWN = dict(zip(("normative", "epistemic"), ("refusal_on_harmful", "abstention_on_uncertain"), strict=True))


@dataclass(frozen=True)
class Setting:
    """The directions and test prompts of one dissociation."""

    directions: dict[Kind, Direction]
    decliners: dict[Kind, np.ndarray]  # rows of the test part that decline as they should at baseline
    absent: dict[Kind, str]


def dissociate(context: Context) -> None:
    """Write stages/dissociate.json: the matrix, the null, the verdict."""
    setting = _setting(context)
    actions = _actions(context, setting)
    null = _null(context, setting) if not setting.absent else None
    effects = {
        (kind, behaviour): Effect(_stopped(actions[f"ablate_{kind}"], rows), _p_value(null, kind, behaviour))
        for kind in setting.directions
        for behaviour, rows in setting.decliners.items()
        if behaviour not in setting.absent
    }
    config = context.config.dissociate
    n_groups = {kind: context.corpus.effective_groups(rows) for kind, rows in setting.decliners.items()}
    verdict = judge_dissociation(
        effects, n_groups, setting.absent, _unsound(setting), margin=config.margin, alpha=config.alpha
    )
    write_json(
        context.file("stages/dissociate.json"),
        {
            "verdict": verdict.verdict,
            "reasons": list(verdict.reasons),
            "margin": config.margin,
            "alpha": config.alpha,
            "contrasts": {name: _record(interval) for name, interval in verdict.contrasts.items()},
            "matrix": _matrix(context, setting, actions),
            "effects": {
                f"ablate_{k}_on_{b}": _record(effect_interval(e, n_groups[b], config.alpha), len(e.stopped))
                | {"p_null": e.p_null}
                for (k, b), e in effects.items()
            },
            "null": None if null is None else null.record,
        },
    )


def _setting(context: Context) -> Setting:
    behaviour = context.behaviour
    found = load_directions(context.file("directions.safetensors"))
    directions: dict[Kind, Direction] = {k: found[f"{k}_write"] for k in KINDS if f"{k}_write" in found}
    decliners = {kind: behaviour.decliners(kind, "test") for kind in KINDS}
    absent: dict[Kind, str] = {}
    for kind in KINDS:
        n = len(decliners[kind])
        if n < MIN_BASELINE:
            name = OWN[kind].replace("_", " ")
            absent[kind] = f"{name} is absent: {n} baseline occurrences among test prompts, {MIN_BASELINE} are needed"
        elif kind not in directions:
            absent[kind] = f"no {kind} write direction could be fitted"
    return Setting(directions, decliners, absent)


def _unsound(setting: Setting) -> list[Kind]:
    """List the directions none of whose loci met the selection rules: ablating them may break the model itself."""
    return [kind for kind, d in setting.directions.items() if not d.provenance.get("meets_selection_rules", False)]


def _actions(context: Context, setting: Setting) -> dict[str, np.ndarray]:
    """Generate for every test prompt under every intervention; arrays over the whole corpus, None elsewhere."""
    test = np.flatnonzero(context.corpus.within("test"))
    interventions: dict[str, list[Edit]] = {}
    for kind, direction in setting.directions.items():
        interventions[f"ablate_{kind}"] = [ablation(direction)]
        interventions[f"add_{kind}"] = [addition(direction)]
        interventions[f"ablate_random_{kind}"] = [ablation(_random_like(context, kind, direction.locus))]
    actions = {"none": context.behaviour.actions}
    with context.reporter.task("interventions on test prompts", len(test) * len(interventions)) as advance:
        for name, edits in interventions.items():
            said = context.speaker.complete(test.tolist(), edits=edits, advance=advance)
            actions[name] = np.full(len(context.corpus), None, dtype=object)
            actions[name][test] = [completion.action for completion in said]
    return actions


def _random_like(context: Context, kind: Kind, locus: Locus) -> Direction:
    """Return an isotropic random direction at a write locus, its class means measured on the same training prompts."""
    rng = np.random.default_rng([context.config.seed, 3])
    vector = unit(rng.standard_normal(context.model.d_model))
    X, behaviour = context.write_read(locus.layer), context.behaviour
    declined, answered = behaviour.decliners(kind, "train"), behaviour.answered_benign("train")
    along = X @ vector
    return Direction(f"{kind}_random", vector, locus, float(along[declined].mean()), float(along[answered].mean()))


def _stopped(actions: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Say which decliners stopped declining and do something with the request instead.

    What cannot be judged, turns elsewhere or is no answer at all has not been shown to be an opened gate.
    """
    return np.array([actions[row] in OPENED for row in rows], dtype=bool)


def _matrix(context: Context, setting: Setting, actions: dict[str, np.ndarray]) -> dict[str, Any]:
    """Rows are interventions; columns the shares of each behaviour on test prompts, with intervals and n."""
    corpus, behaviour = context.corpus, context.behaviour
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
        name: {column: _share(did, rows, counted, corpus.groups) for column, (rows, counted) in columns.items()}
        for name, did in actions.items()
    }


def _share(did: np.ndarray, rows: np.ndarray, counted: tuple[str, ...], groups: np.ndarray) -> dict[str, Any]:
    judged = np.array([row for row in rows if did[row] is not None], dtype=int)
    hit = np.array([did[row] in counted for row in judged], dtype=bool)
    return _record(grouped_rate(hit, groups[judged]), len(judged))


# -- the null ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Null:
    """Onset effects of the fitted directions, and of directions fitted on permuted labels."""

    observed: dict[tuple[Kind, Kind], float]
    drawn: dict[tuple[Kind, Kind], np.ndarray]
    generated: dict[tuple[Kind, Kind], list[float]]

    def p_value(self, kind: Kind, behaviour: Kind) -> float:
        """Return (1 + #{null >= observed}) / (1 + n), one-sided."""
        drawn = self.drawn[kind, behaviour]
        return float((1 + (drawn >= self.observed[kind, behaviour]).sum()) / (1 + len(drawn)))

    @property
    def record(self) -> dict[str, Any]:
        return {
            f"{k}_on_{b}": {
                "onset_effect": effect,
                "null_95th_percentile": float(np.quantile(self.drawn[k, b], 0.95)),
                "p": self.p_value(k, b),
                "n": len(self.drawn[k, b]),
                "stopped_by_generation": self.generated[k, b],
            }
            for (k, b), effect in self.observed.items()
        }


def _p_value(null: Null | None, kind: Kind, behaviour: Kind) -> float | None:
    return None if null is None else null.p_value(kind, behaviour)


def _null(context: Context, setting: Setting) -> Null:
    """Fit directions on permuted behaviour labels, choose their locus by the same rule, and measure the same effect.

    The effect is the mean fall of a decliner's onset log-odds of its own way of declining. Choosing for the null
    takes the least bypass over the same candidates without the side-effect limits, which can only make it stronger.
    """
    config, rng = context.config.dissociate, np.random.default_rng([context.config.seed, 4])
    onsets = context_onsets(context)
    tested = {b: np.sort(rng.permutation(rows)[: config.n_onset]) for b, rows in setting.decliners.items()}
    scorers = {b: OnsetScorer(context.model, [context.rendered[i] for i in rows], onsets) for b, rows in tested.items()}
    base = {b: scorer.log_odds()[ACTION_OF[b]].mean() for b, scorer in scorers.items()}

    def effects(direction: Direction) -> dict[Kind, float]:
        edit = ablation(direction)
        return {b: float(base[b] - s.log_odds([edit])[ACTION_OF[b]].mean()) for b, s in scorers.items()}

    observed = {(k, b): e for k, d in setting.directions.items() for b, e in effects(d).items()}
    drawn: dict[tuple[Kind, Kind], list[float]] = {key: [] for key in observed}
    generated: dict[tuple[Kind, Kind], list[float]] = {key: [] for key in observed}
    total = config.n_null_onset * len(setting.directions)
    with context.reporter.task("permuted-label null", total) as advance:
        for kind in setting.directions:
            pick = _Picker(context, kind, onsets, rng)
            for i in range(config.n_null_onset):
                direction = pick.draw()
                for b, effect in effects(direction).items():
                    drawn[kind, b].append(effect)
                    if i < config.n_null_generation:
                        did = context.speaker.actions(tested[b].tolist(), edits=[ablation(direction)])
                        generated[kind, b].append(float(np.mean([a in OPENED for a in did])))
                advance(1)
    return Null(observed, {key: np.array(values) for key, values in drawn.items()}, generated)


class _Picker:
    """Draws null directions of one kind: permuted labels, then the locus of least bypass."""

    N_SELECTION = 8  # validation decliners a null direction's locus is chosen on

    def __init__(self, context: Context, kind: Kind, onsets: Onsets, rng: np.random.Generator) -> None:
        samples = write_samples(context.behaviour, kind)
        if samples is None:
            raise ValueError(f"no {kind} write direction, so no null of it")
        rows = rng.permutation(context.behaviour.decliners(kind, "validation"))[: self.N_SELECTION]
        self._onset, self._rng = ACTION_OF[kind], rng
        self._fitter = write_fitter(context, kind, samples)
        self._scorer = OnsetScorer(context.model, [context.rendered[i] for i in rows], onsets)

    def draw(self) -> Direction:
        fitted = self._fitter.fit(permuted(self._fitter.samples, self._rng))
        bypass = self._scorer.log_odds_each([[ablation(direction)] for direction in fitted])[self._onset].mean(axis=1)
        return fitted[int(np.where(np.isnan(bypass), np.inf, bypass).argmin())]


def _record(interval: Interval, n: int | None = None) -> dict[str, Any]:
    estimate = None if np.isnan(interval.estimate) else interval.estimate
    record: dict[str, Any] = {"estimate": estimate, "low": interval.low, "high": interval.high}
    return record | ({} if n is None else {"n": n})
