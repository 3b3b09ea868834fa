"""Generates the outcomes that the choice of thresholds and the comparison of policies rest on, and no others.

Settings are chosen by rates of mistakes on the choice prompts, and no rule prefers a higher rate. So an outcome that is
not there counts as no mistake: the setting that is best by these lower limits of the rates, once its own outcomes are
there, is the best of all (best-first search). Thresholds and certificates are those of the whole table; settings far
from them are excluded by a few outcomes, first those that most settings share. Thresholds from the smallest to the
largest of these settings, and a few beyond, are the candidates: at them every prompt has its outcome, and policies are
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.dials.counterfactuals import Counterfactuals, OutcomeGenerator
from experiments.dials.operating_point import CERTIFIED_ON, Targets, choose_thresholds, margin_order
from experiments.dials.policies import PolicyEvaluation, costs_of, evaluate, matched_setting
from experiments.dials.read import CHOICE
from experiments.dials.results import ThresholdCertificate
from experiments.dials.surface import (
    REFERENCE,
    UNMEASURED,
    Risk,
    Surface,
    axes_of,
    cheapest,
    comparable,
    cost_shares,
    frontier,
    least_cost,
    rates_of,
)
from experiments.dials.write import EITHER, either_writers
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from extract.progress import Advance
from probes.statistics.tradeoffs import hypervolume
from steering.writer import Writer

Settings = Int[np.ndarray, " settings"]
Risks = Mapping[str, Risk]
Thresholds = list[Float[np.ndarray, " thresholds"]]  # of each dial
BEYOND = 0.05  # share of prompts
NONE = np.zeros(0, dtype=int)


@dataclass(frozen=True)
class Question:
    """Something that is chosen among settings by the risks on the choice prompts, whatever is not there yet."""

    surface: Surface
    rows: Int[np.ndarray, " rows"]  # prompts whose outcomes count
    likely: Bool[np.ndarray, "prompts outcomes"]  # outcomes that probably count as mistakes, which exclude settings
    rests_on: Callable[[Counterfactuals, Risks], tuple[Settings, Settings]]  # and what it may rest on next
    candidates: bool = True  # whether policies are compared at these settings too

    def missing(self, table: Counterfactuals, risks: Risks, most: int) -> Bool[np.ndarray, "prompts outcomes"]:
        """Return at most so many outcomes that are not there, of settings in turn, likely mistakes before others."""
        cells, (needed, following) = np.zeros(table.known.shape, dtype=bool), self.rests_on(table, risks)
        for turn, setting in enumerate((*needed, *following)):
            left = most - int(cells.sum())
            if not left or (turn >= len(needed) and left == most):
                break
            place = self.surface.outcome[setting, self.rows]
            lacking = ~(table.known | cells)[self.rows, place]
            rows, place = self.rows[lacking], place[lacking]
            first = np.lexsort((-self.surface.shared[rows, place], ~self.likely[rows, place]))[:left]
            cells[rows[first], place[first]] = True
        return cells


def lower_limits(risks: Risks) -> dict[str, Risk]:
    """Return risks in which an outcome that is not there is no mistake."""
    return {
        name: replace(risk, failed=np.where(risk.failed == UNMEASURED, 0, risk.failed).astype(np.int8))
        for name, risk in risks.items()
    }


@dataclass
class Search:
    """Generates outcomes for questions about one policy; `policy` has the outcomes that are there."""

    policy: PolicyEvaluation
    generator: OutcomeGenerator
    advance: Advance
    most: int  # outcomes at a time

    def settle(self, questions: Sequence[Question]) -> None:
        """Generate outcomes until each question in turn rests on known ones alone; more outcomes leave it so."""
        for question in questions:
            while (wanted := self._missing(question)).any():
                self._generate(wanted)

    def among(self, thresholds: Thresholds) -> PolicyEvaluation:
        """Return the policy at these thresholds alone, with the outcome of every prompt at each."""
        surface = Surface.over(self.policy.table, thresholds, self.policy.inputs.config.steer.band)
        places = range(len(self.policy.table.outcomes))
        self._generate(np.stack([(surface.outcome == place).any(axis=0) for place in places], axis=1))
        return replace(self.policy, surface=surface)

    def needed(self, questions: Sequence[Question]) -> Float[np.ndarray, "settings dials"]:
        """Return the settings that settled questions rest on, if policies are compared there."""
        table, risks = self.policy.table, lower_limits(self.policy.choice)
        settings = [q.surface.settings[q.rests_on(table, risks)[0]] for q in questions if q.candidates]
        return np.concatenate(settings)

    def _missing(self, question: Question) -> Bool[np.ndarray, "prompts outcomes"]:
        return question.missing(self.policy.table, lower_limits(self.policy.choice), self.most)

    def _generate(self, cells: Bool[np.ndarray, "prompts outcomes"]) -> None:
        self.policy = replace(self.policy, table=self.generator.generate(self.policy.table, cells, self.advance))


def mistaken(policy: PolicyEvaluation) -> Bool[np.ndarray, "prompts outcomes"]:
    """Return the outcomes that are mistakes if gates do as they decide: benign prompts declined, others not."""
    declines = np.array([1 in gates for gates in policy.table.outcomes])
    return np.asarray(policy.inputs.corpus.benign[:, None] == declines)


def threshold_questions(policy: PolicyEvaluation, allowed: Surface, targets: Targets) -> Iterator[Question]:
    """Yield what the thresholds and their certificate rest on, among the allowed settings."""
    corpus, seed = policy.inputs.corpus, policy.inputs.config.seed
    choice, both = (np.flatnonzero(corpus.rated & corpus.within(*parts)) for parts in (CHOICE, (*CHOICE, CERTIFIED_ON)))

    def certified(table: Counterfactuals, risks: Risks) -> tuple[Settings, Settings]:
        held_out = replace(policy, table=table).certification  # an outcome that is not there counts as failed
        index, certificate = choose_thresholds(allowed, risks, held_out, corpus, targets, seed)
        order, passed = margin_order(allowed, risks, corpus, targets), certificate.settings_certified
        return np.array([index, *order[: passed + 1]]), order[passed + 1 :]

    def within(_: Counterfactuals, risks: Risks) -> tuple[Settings, Settings]:
        rates = rates_of(allowed, risks)
        met = [comparable(rates[name]) <= limit for name, limit in targets.limits.items()]
        return (np.flatnonzero(np.all(met, axis=0)) if met else NONE), NONE

    likely = mistaken(policy)
    if targets.ceilings:  # another rule holds where no setting is within all limits
        yield Question(allowed, choice, likely, within)
    yield Question(allowed, choice, likely, lambda *given: (certified(*given)[0][:1], NONE))
    yield Question(allowed, both, likely, certified)
    yield Question(allowed, choice, likely, within)
    for name, risk in policy.choice.items():  # the lowest rate that any setting reaches

        def lowest(_: Counterfactuals, risks: Risks, name: str = name) -> tuple[Settings, Settings]:
            rate = comparable(rates_of(allowed, {name: risks[name]})[name])
            return np.lexsort((allowed.off, rate))[:1], NONE

        yield Question(allowed, risk.rows, likely, lowest, candidates=False)


def comparison_questions(
    policy: PolicyEvaluation, costs: Mapping[str, float], most: Callable[[Counterfactuals, Risks], float]
) -> Iterator[Question]:
    """Yield the settings at which a policy is compared with others; `most`: the over-refusal that it is matched at."""
    corpus, surface, shares = policy.inputs.corpus, policy.surface, cost_shares(costs)

    def compared(table: Counterfactuals, risks: Risks) -> tuple[Settings, Settings]:
        matched = matched_setting(surface, risks, most(table, risks))
        return np.array([*cheapest(surface, risks, shares), least_cost(surface, risks, costs), matched]), NONE

    yield Question(surface, np.flatnonzero(corpus.rated & corpus.within(*CHOICE)), mistaken(policy), compared)


def settle_dials(
    policy: PolicyEvaluation, allowed: Surface, targets: Targets, generator: OutcomeGenerator
) -> tuple[PolicyEvaluation, list[float], ThresholdCertificate]:
    """Choose and certify thresholds among the allowed settings; return the policy at the candidates too."""
    inputs = policy.inputs
    config, corpus, seed = inputs.config, inputs.corpus, inputs.config.seed

    def over_refusal(table: Counterfactuals, risks: Risks) -> float:
        held_out = replace(policy, table=table).certification
        index, _ = choose_thresholds(allowed, risks, held_out, corpus, targets, seed)
        at = rates_of(allowed.at([index]), {"over_refusal": risks["over_refusal"]})
        return float(comparable(at["over_refusal"])[0])

    questions = [
        *threshold_questions(policy, allowed, targets),
        *comparison_questions(policy, costs_of(inputs, policy), over_refusal),
    ]
    with generator.loaded.reporter.task("outcomes of the gates", None) as advance:
        search = Search(policy, generator, advance, config.generate.batch_size)
        search.settle(questions)
        risks = lower_limits(search.policy.choice), search.policy.certification
        index, certificate = choose_thresholds(allowed, *risks, corpus, targets, seed)
        chosen = allowed.settings[index].tolist()
        all_of = config.steer.outcomes == "all" or config.steer.by  # a category's thresholds may be far from the others
        near = thresholds_around(policy, policy.surface.settings if all_of else search.needed(questions))
        search.among([np.union1d(axis, [tau]) for axis, tau in zip(near, chosen, strict=True)])
    return search.among(near), chosen, certificate


def settle_one_dial(
    loaded: LoadedRun, writers: Mapping[Kind, Writer], dials: PolicyEvaluation, most: float
) -> tuple[PolicyEvaluation, Writer] | None:
    """Return the one-dial baseline; of several write loci, that of the largest hypervolume on the choice prompts.

    It reads the greater probability of the dials, and is matched with them at `most` over-refusal.
    """
    dead_band, probability = loaded.config.steer.band > 0, dials.table.probability.max(axis=0)
    tried, needed = list[tuple[Search, Writer]](), list[Float[np.ndarray, "settings dials"]]()
    with loaded.reporter.task("outcomes of one dial", None) as advance:
        for writer in either_writers(loaded, writers):
            generator = OutcomeGenerator(loaded, [(EITHER, writer)], dead_band)
            policy = evaluate(loaded, generator.start([probability]), [~loaded.corpus.benign])
            questions = [*comparison_questions(policy, costs_of(loaded, dials), lambda *_: most)]
            search = Search(policy, generator, advance, loaded.config.generate.batch_size)
            search.settle(questions)
            tried.append((search, writer))
            needed.append(search.needed(questions))
        if not tried:
            return None
        all_of = loaded.config.steer.outcomes == "all"
        near = thresholds_around(policy, policy.surface.settings if all_of else np.concatenate(needed))
        made = [(search.among(near), writer) for search, writer in tried]

    def volume(each: tuple[PolicyEvaluation, Writer]) -> float:
        one, _ = each
        return hypervolume(axes_of(rates_of(one.surface.at(frontier(one.surface, one.choice)), one.choice)), REFERENCE)

    return max(made, key=volume)


def thresholds_around(policy: PolicyEvaluation, needed: Float[np.ndarray, "settings dials"]) -> Thresholds:
    """Return each dial's thresholds from the smallest to the largest of some settings, and some more on either side.

    Beyond the ends of these, a dial decides otherwise on at most `BEYOND` of the prompts.
    """
    around = Thresholds()
    for axis, p in enumerate(policy.table.probability):
        tried, low, high = np.unique(policy.surface.settings[:, axis]), needed[:, axis].min(), needed[:, axis].max()
        other = [((p >= tau) & (p < low)).mean() + ((p >= high) & (p < tau)).mean() for tau in tried]
        around.append(tried[np.array(other) <= BEYOND])
    return around
