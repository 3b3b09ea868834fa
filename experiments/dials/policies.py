"""The compared policies at each of their settings: two dials, one dial, a system line, the plain model.

One dial reads the greater of the two dials' probabilities, so the comparison is of knobs and not of probes: one linear
probe of "harmful or uncertain" would do worse and make two dials look better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from experiments.dials.counterfactuals import Counterfactuals
from experiments.dials.operating_point import CERTIFIED_ON, reachable_costs
from experiments.dials.read import CHOICE
from experiments.dials.results import (
    ExpectedCosts,
    Hypervolume,
    LeastRegret,
    MatchedSettings,
    RatedThresholds,
    RiskRates,
    SystemLine,
    SystemLines,
)
from experiments.dials.surface import (
    AXES,
    COST_KEYS,
    COST_RATIOS,
    MEASURED,
    REFERENCE,
    RISKS,
    Risk,
    Surface,
    axes_of,
    comparable,
    cost_saved,
    expected_cost,
    frontier,
    frontier_volume,
    least_cost,
    least_losses,
    rates_of,
    risk_of,
)
from experiments.responses.loaded_run import LoadedRun
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import Outcomes
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import with_line
from probes.statistics.intervals import Estimate
from probes.statistics.tradeoffs import candidate_thresholds
from scoring.rates import joint_rates
from steering.writer import Writer

Fields = dict[str, Any]  # some fields of `SteerResult`, by name


@dataclass(frozen=True)
class PolicyEvaluation:
    """A table with its surface, and every risk counted on the choice, certification and test prompts."""

    table: Counterfactuals
    surface: Surface
    inputs: RunInputs

    def risks(self, among: Bool[np.ndarray, " prompts"], names: Sequence[str] = MEASURED) -> dict[str, Risk]:
        corpus, right = self.inputs.corpus, self.inputs.behaviour.correct
        return {name: risk_of(name, self.table, corpus, right, among) for name in names}

    @cached_property
    def choice(self) -> dict[str, Risk]:
        return self.risks(self.inputs.corpus.within(*CHOICE))

    @cached_property
    def certification(self) -> dict[str, Risk]:
        return self.risks(self.inputs.corpus.within(CERTIFIED_ON), RISKS)

    @cached_property
    def test(self) -> dict[str, Risk]:
        return self.risks(self.inputs.corpus.within("test"))

    @cached_property
    def front(self) -> Int[np.ndarray, " kept"]:
        return frontier(self.surface, self.choice)

    def with_plain(self) -> PolicyEvaluation:
        """Return the policy with one setting more, the last: no dial, so the plain model (its thresholds are NaN)."""
        table, plain, n = self.table, self.inputs.behaviour, len(self.table.outcomes)
        off = np.full((1, len(table.dials)), np.nan)
        outcomes = np.vstack([self.surface.outcome, np.full((1, len(plain.actions)), n, dtype=np.int8)])
        extended = replace(
            table,
            outcomes=(*table.outcomes, ()),
            actions=np.column_stack([table.actions, plain.actions]),
            right=np.column_stack([table.right, plain.correct]),
            generated=np.column_stack([table.known, np.ones(len(plain.actions), dtype=bool)]),
        )
        return replace(self, table=extended, surface=Surface(np.vstack([self.surface.settings, off]), outcomes))


def evaluate(
    inputs: RunInputs, table: Counterfactuals, declining: Sequence[Bool[np.ndarray, " prompts"]]
) -> PolicyEvaluation:
    """Evaluate a table at the candidate thresholds of the choice prompts, given what each dial should decline."""
    chosen = inputs.corpus.rated & inputs.corpus.within(*CHOICE)
    thresholds = [candidate_thresholds(p[chosen], y[chosen]) for p, y in zip(table.probability, declining, strict=True)]
    surface = Surface.over(table, thresholds, inputs.config.steer.band)
    return PolicyEvaluation(table, surface, inputs)


def evaluate_fixed(inputs: RunInputs, points: Sequence[Outcomes]) -> PolicyEvaluation:
    """Evaluate responses that depend on no threshold, one point each."""
    n, k = len(inputs.prompts), len(points)
    did, stated = np.full((n, k), None, dtype=object), np.zeros((n, k), dtype=bool)
    for column, point in enumerate(points):
        did[point.rows, column], stated[point.rows, column] = point.action, point.right
    table = Counterfactuals((), tuple(() for _ in range(k)), np.zeros((0, n)), did, stated)
    surface = Surface(np.zeros((k, 0)), np.repeat(np.arange(k, dtype=np.int8)[:, None], n, axis=1))
    return PolicyEvaluation(table, surface, inputs)


def setting_at(policy: PolicyEvaluation, index: int) -> RatedThresholds:
    """Return a setting with its rates on the choice prompts and on test."""
    here = policy.surface.at([index])

    def rates(risks: Mapping[str, Risk]) -> RiskRates:
        at = {name: float(rate[0]) for name, rate in rates_of(here, risks).items()}
        return {name: None if np.isnan(rate) else rate for name, rate in at.items()}

    thresholds = {name: float(tau) for name, tau in zip(policy.table.dials, here.settings[0], strict=True)}
    return RatedThresholds(thresholds=thresholds, choice=rates(policy.choice), test=rates(policy.test))


def matched_setting(surface: Surface, choice: Mapping[str, Risk], most: float) -> int:
    """Return the setting with the fewest other mistakes at over-refusal of at most `most`, or at the least."""
    points = comparable(axes_of(rates_of(surface, choice)))
    declined, others = points[:, 0], points[:, 1:].sum(axis=1)
    return int(np.lexsort((declined, others.round(9), np.maximum(declined - most, 0).round(9)))[0])


def ask_under_lines(
    loaded: LoadedRun, lines: Sequence[str], rows: Int[np.ndarray, " rows"]
) -> tuple[dict[str, Outcomes], str]:
    """Ask some prompts again with each system line; return the outcomes, or the reason why there are none."""
    asked = {line: [with_line(loaded.prompts[row], line) for row in rows] for line in lines}
    try:
        rendered = {line: [render(loaded.model.tokenizer, p) for p in prompts] for line, prompts in asked.items()}
    except UserError as error:
        return {}, f"the chat template takes no system message ({error}); model.system=merge puts it into the user turn"
    outcomes = {}
    with loaded.reporter.task("test prompts under system lines", len(lines) * len(rows)) as advance:
        for line, prompts in asked.items():
            completer = replace(loaded.completer, prompts=prompts, rendered=rendered[line])
            completions = completer.complete(range(len(rows)), advance=advance)
            outcomes[line] = Outcomes.completed(rows, completions, loaded.prompts)
    return outcomes, ""


def tradeoff(
    loaded: LoadedRun, dials: PolicyEvaluation, single: tuple[PolicyEvaluation, Writer] | None, most: float
) -> Fields:
    """Compare the dials with one dial, lines and the plain model, also at `most` over-refusal on choice prompts."""
    test = np.flatnonzero(loaded.corpus.rated & loaded.corpus.within("test"))
    lines, reason = ask_under_lines(loaded, loaded.config.steer.system_lines, test)
    shown = {"two_dials": dials} | ({"one_dial": single[0]} if single else {})
    did = loaded.behaviour
    plain = evaluate_fixed(loaded, [Outcomes.of(np.arange(len(did.actions)), did.actions, did.correct)])
    written = single[1].direction if single else None
    best = {name: setting_at(one, matched_setting(one.surface, one.choice, most)) for name, one in shown.items()}
    under_lines = evaluate_fixed(loaded, list(lines.values())) if lines else None
    points = [_of_line(loaded, line, outcomes) for line, outcomes in lines.items()]
    return {
        "frontier": {name: [setting_at(one, index) for index in one.front] for name, one in shown.items()},
        "system_lines": SystemLines(reason=reason, points=points),
        "hypervolume": _hypervolumes(shown, plain, under_lines),
        "expected_costs": expected_costs(loaded, shown, plain),
        "one_dial_written_at": written.locus if written else None,
        "matched": MatchedSettings.model_validate({"over_refusal_at_most": most, **best}),
        "least_regret": least_regret(loaded, dials),
    }


def _hypervolumes(
    shown: Mapping[str, PolicyEvaluation], plain: PolicyEvaluation, lines: PolicyEvaluation | None
) -> Hypervolume:
    """Return the hypervolume of every policy; the plain model is a point of each, since a dial can be off."""
    extended = {name: one.with_plain() for name, one in shown.items()}
    fronts = {name: np.append(shown[name].front, len(one.surface.settings) - 1) for name, one in extended.items()}
    volumes = {name: frontier_volume(one.surface.at(fronts[name]), one.test) for name, one in extended.items()}
    if lines is not None:
        with_plain = lines.with_plain()
        volumes["system_lines"] = frontier_volume(with_plain.surface, with_plain.test)
    volumes["plain"] = frontier_volume(plain.surface, plain.test)
    two = volumes["two_dials"].estimate
    gained = {n: Estimate(two - volume.estimate, nan, nan) for n, volume in volumes.items() if n != "two_dials"}
    n = {name: len(risk.rows) for name, risk in plain.test.items()}
    more = {"axes": AXES, "reference": REFERENCE, "n": n, "two_minus": gained}
    return Hypervolume.model_validate(volumes | more)


def expected_costs(inputs: RunInputs, shown: Mapping[str, PolicyEvaluation], plain: PolicyEvaluation) -> ExpectedCosts:
    """Compare least expected costs on test of two dials with those of the other policies; each dial can be off."""
    costs = costs_of(inputs, shown["two_dials"])
    policies = {name: one.with_plain() for name, one in shown.items()} | {"plain": plain}
    losses = {name: least_losses(one.surface, one.choice, one.test, costs) for name, one in policies.items()}
    groups, two = inputs.corpus.groups, losses["two_dials"]
    saved = {name: cost_saved(two, other, groups) for name, other in losses.items() if other is not two}
    return ExpectedCosts(
        costs=costs,
        ratios=list(COST_RATIOS),
        policies={name: None if np.isnan(cost := each.expected_cost()) else cost for name, each in losses.items()},
        saved=saved,
    )


def costs_of(inputs: RunInputs, dials: PolicyEvaluation) -> dict[str, float]:
    """Return the given costs that the dials can save, or equal ones."""
    given = inputs.config.steer.costs
    return reachable_costs(dict.fromkeys(COST_KEYS, 1.0) if given is None else given.model_dump(), dials.table.dials)


def least_regret(inputs: RunInputs, dials: PolicyEvaluation) -> LeastRegret:
    """Return the cheapest setting on the choice prompts, its cost on test, and its regret against the least there."""
    costs = costs_of(inputs, dials)
    index = least_cost(dials.surface, dials.choice, costs)
    on_test = expected_cost(rates_of(dials.surface, dials.test), costs)
    cost, regret = float(on_test[index]), float(on_test[index] - on_test.min())
    return LeastRegret(**dict(setting_at(dials, index)), costs=costs, cost=cost, regret=regret)


def _of_line(inputs: RunInputs, line: str, outcomes: Outcomes) -> SystemLine:
    prompts = [inputs.prompts[row] for row in outcomes.rows]
    facts = np.array([prompt.answer is not None for prompt in prompts], dtype=bool)
    rates = joint_rates([p.label for p in prompts], list(outcomes.action), inputs.corpus.groups[outcomes.rows])
    return SystemLine(
        line=line, rates=rates, known_facts_right=float(outcomes.right[facts].mean()) if facts.any() else None
    )
