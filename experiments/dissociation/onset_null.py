"""Onset effects and their permutation null: directions fitted on permuted labels, with whole groups of prompts.

Each draw has the same candidates as the real direction, and its locus is chosen by the same rule on the same validation
prompts, so under no effect all are exchangeable and p is exact. Drawing stops once the tests of a direction's effects
on all behaviours have stopped (`probes/statistics/sequential.py`). An isotropic random vector would be a weak
null: it misses the top principal components, so any fitted direction would look special (METHODS).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.dissociation.applicability import looks
from experiments.dissociation.new_thoughts import NewThoughts
from experiments.dissociation.results import NullRecord
from experiments.probing.stage import context_onsets, locus_selection, validation_of, write_fitter
from experiments.responses.batched_edits import Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import EITHER, Onsets, OnsetScorer
from experiments.run.behaviour import ACTION_OF, KINDS, Kind, WriteSamples, write_samples
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from probes.statistics.sequential import DrawingRule
from scoring.actions import OPENED
from steering.ablation import ablation

Cell = TypeVar("Cell", bound=Hashable)  # a behaviour, or one in a condition
MeasuredDraws = tuple[list[Direction], dict[Cell, np.ndarray]]  # and the mean fall of each cell's log-odds under each
Nulls = dict[Kind, dict[Kind, NullRecord]]
TOGETHER = 20  # null directions that are drawn and measured together


class OnsetEffects:
    """Measures how edits change the onset log-odds of fixed decliners, of opening with their own way of declining."""

    def __init__(
        self,
        model: ChatModel,
        rendered: Sequence[Rendered],
        decliners: Mapping[Kind, Int[np.ndarray, " decliners"]],
        onsets: Onsets,
    ) -> None:
        self.rows = dict(decliners)
        self._scorers = {b: OnsetScorer(model, [rendered[i] for i in rows], onsets) for b, rows in decliners.items()}
        self.before = {b: scorer.log_odds()[ACTION_OF[b]] for b, scorer in self._scorers.items()}

    def after(self, trials: Sequence[Trial]) -> dict[Kind, Float[np.ndarray, "trials decliners"]]:
        """Return each behaviour's log-odds under each trial's edits."""
        return {b: scorer.log_odds_each(trials)[ACTION_OF[b]] for b, scorer in self._scorers.items()}

    def either(self, behaviour: Kind, edits: Trial) -> Float[np.ndarray, " decliners"]:
        """Return the log-odds of declining in either way under edits."""
        return self._scorers[behaviour].log_odds(edits)[EITHER]

    def falls(self, trials: Sequence[Trial]) -> dict[Kind, Float[np.ndarray, " trials"]]:
        """Return each behaviour's mean fall of the onset log-odds under each trial's edits, in nats."""
        return {b: self.before[b].mean() - after.mean(axis=1) for b, after in self.after(trials).items()}


def that_miss_rules(*halves: Mapping[Kind, Direction]) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """Return the kinds whose direction may break the model in some half, and the others whose induces little there."""
    found = [(kind, direction.provenance) for half in halves for kind, direction in half.items()]
    missing = [(kind, of.get("misses")) for kind, of in found if not of.get("meets_selection_rules", False)]
    unsound = {kind for kind, rule in missing if rule != "induce"}
    weak = {kind for kind, _ in missing} - unsound
    return tuple(k for k in KINDS if k in unsound), tuple(k for k in KINDS if k in weak)


def may_break_more(other: Mapping[Kind, Direction], own: Mapping[Kind, Direction]) -> bool:
    """Return whether a direction of the other half may break the model where the run's own does not."""
    return bool({*that_miss_rules(other)[0]} - {*that_miss_rules(own)[0]})


def permuted_null(
    loaded: LoadedRun, directions: Mapping[Kind, Direction], effects: OnsetEffects
) -> tuple[Nulls, Nulls]:
    """Fit directions on permuted behaviour labels, choose their locus by the same rule, and measure the same effect.

    Some of them also generate. The nulls are by ablated direction, then behaviour. Of a model that thinks, the first
    are of effects after the thoughts under each ablation, and the second of those after the plain thoughts.
    """
    config, rng = loaded.config.dissociate, named_rng(loaded.config.seed, "permuted-label null")
    rule = DrawingRule.at_look(looks(loaded), config.n_null(thinks=loaded.thinks), config.alpha)
    n_generation = rule.n if loaded.thinks else config.n_null_generation
    observed = effects.falls([ablation(direction, config.variant) for direction in directions.values()])

    null, fixed, new = Nulls(), Nulls(), NewThoughts(loaded, context_onsets(loaded))
    with loaded.reporter.task("permuted-label null", rule.n * len(directions)) as advance:
        for i, (kind, real) in enumerate(directions.items()):
            samples = _samples(loaded, kind)
            task = NullDraws(kind, effects.rows, context_onsets(loaded), bool(real.provenance.get("screened")))
            drawn = list[Direction]()
            for part, null[kind] in sequential_null(
                loaded.map(task, in_parts(samples.permutations(rng, rule.n), 5 if loaded.thinks else TOGETHER)),
                {b: float(observed[b][i]) for b in effects.rows},
                samples.n_labellings,
                rule,
            ):
                advance(len(part))
                drawn += part
                if len(drawn) >= n_generation and all(of.settled for of in null[kind].values()):
                    break
            advance(rule.n - len(drawn), remembered=True)
            trials = {i: ablation(each, config.variant) for i, each in enumerate(drawn[:n_generation])}
            for b, of in null[kind].items():
                answered = loaded.completer.outcomes(effects.rows[b], trials).values()
                generated = tuple(float(each.hits(OPENED).mean()) for each in answered)
                null[kind][b] = of.model_copy(update={"stopped_by_generation": generated})
            if loaded.thinks:
                fixed[kind], tried = null[kind], [ablation(each, config.variant) for each in (real, *drawn)]
                null[kind] = {b: _after_new_thoughts(new, b, effects, tried, of, rule) for b, of in fixed[kind].items()}
    return null, fixed


def _after_new_thoughts(
    new: NewThoughts, kind: Kind, effects: OnsetEffects, tried: Sequence[Trial], fixed: NullRecord, rule: DrawingRule
) -> NullRecord:
    """Return the null on one behaviour of the first trial's effect after new thoughts, from the others'."""
    rows, before = effects.rows[kind], effects.before[kind].mean()
    observed, *drawn = before - new.after_own(kind, rows, tried).mean(axis=1)
    return NullRecord.of(observed, drawn, fixed.stopped_by_generation, fixed.n_labellings or np.inf, rule)


def sequential_null(
    measured: Iterator[tuple[int, MeasuredDraws[Cell]]],
    observed: Mapping[Cell, float],
    n_labellings: float,
    rule: DrawingRule,
) -> Iterator[tuple[list[Direction], dict[Cell, NullRecord]]]:
    """Yield the directions of each part, in the order of their places, and each cell's null up to that part."""
    falls, waiting, place = {b: np.empty(0) for b in observed}, dict[int, MeasuredDraws[Cell]](), 0
    for came, part in measured:
        waiting[came] = part
        while place in waiting:
            directions, of_part = waiting.pop(place)
            falls = {b: np.append(of, of_part[b]) for b, of in falls.items()}
            yield directions, {b: NullRecord.of(observed[b], of, (), n_labellings, rule) for b, of in falls.items()}
            place += 1


@dataclass(frozen=True)
class NullDraws:
    """The task of measuring draws of one kind's null; a part is some permuted labellings."""

    kind: Kind
    decliners: Mapping[Kind, Int[np.ndarray, " decliners"]]
    onsets: Onsets
    screened: bool

    def prepare(self, loaded: LoadedRun) -> Callable[[Bool[np.ndarray, "draws samples"]], MeasuredDraws[Kind]]:
        """Return the function of a part."""
        sampler = NullDirectionSampler(loaded, self.kind, self.onsets, screened=self.screened)
        effects = OnsetEffects(loaded.model, loaded.rendered, self.decliners, self.onsets)

        def measure(labellings: Bool[np.ndarray, "draws samples"]) -> MeasuredDraws[Kind]:
            directions = sampler.of_labellings(labellings)
            trials = [ablation(each, loaded.config.dissociate.variant) for each in directions]
            return directions, effects.falls(trials)

        return measure


class NullDirectionSampler:
    """Makes null directions of one kind: fitted on permuted labels, with the run's choice of the locus."""

    def __init__(
        self,
        loaded: LoadedRun,
        kind: Kind,
        onsets: Onsets,
        samples: WriteSamples | None = None,
        *,
        screened: bool = False,
    ) -> None:
        """Prepare draws that permute the labels of `samples`, or of the run's own.

        `screened`: only the best candidates by first order are measured, as for the real direction.
        """
        self.samples = samples or _samples(loaded, kind)
        if (validation := validation_of(loaded, kind)) is None:
            raise ValueError(f"there is no {kind} write direction, so it has no null")
        self._fitter = write_fitter(loaded, kind, self.samples, later=loaded.config.dissociate.layers == "later")
        self._selection = locus_selection(loaded, kind, onsets, validation)
        self._screen = self._selection.screen(self._fitter.fit()) if screened else None

    def of_labellings(self, labellings: Bool[np.ndarray, "draws samples"]) -> list[Direction]:
        """Return the direction of each labelling, chosen in the same forward passes."""
        fitted = [self._fitter.fit(labels) for labels in labellings]
        return [candidate.direction for candidate, _ in self._selection.choose_each(fitted, self._screen)]

    def draw(self, rng: np.random.Generator, n: int) -> list[Direction]:
        """Return n null directions."""
        parts = in_parts(self.samples.permutations(rng, n))
        return [direction for part in parts for direction in self.of_labellings(part)]


def _samples(loaded: LoadedRun, kind: Kind) -> WriteSamples:
    if (samples := write_samples(loaded.behaviour, kind)) is None:
        raise ValueError(f"there is no {kind} write direction, so it has no null")
    return samples


def in_parts(
    labellings: Bool[np.ndarray, "draws samples"], n: int = TOGETHER
) -> list[Bool[np.ndarray, "draws samples"]]:
    """Divide labellings into parts of n that are measured together."""
    return [labellings[start : start + n] for start in range(0, len(labellings), n)]
