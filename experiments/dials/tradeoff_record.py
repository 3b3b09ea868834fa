"""Trade-off of a run: frontiers, hypervolumes, expected costs, rates at matched over-refusal, least regret."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.dials.operating_point import expected_cost, reachable_costs
from experiments.dials.policies import (
    LineResponses,
    PolicyEvaluation,
    ask_under_lines,
    evaluate_fixed,
    evaluate_one_dial,
    matched_setting,
    setting_at,
)
from experiments.dials.results import (
    ExpectedCosts,
    Hypervolume,
    LeastRegret,
    MatchedSettings,
    Setting,
    SystemLine,
    SystemLines,
)
from experiments.dials.surface import AXES, rates_of
from experiments.dials.tradeoff import COST_KEYS, COST_RATIOS, REFERENCE, cost_saved, frontier_volume, least_losses
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.inputs import RunInputs
from probes.direction import Locus
from probes.statistics.intervals import Estimate
from scoring.rates import joint_rates
from steering.writer import Writer


class Tradeoff(NamedTuple):
    """The fields of `SteerResult` that compare the dials with other policies."""

    frontier: dict[str, list[Setting]]
    system_lines: SystemLines
    hypervolume: Hypervolume
    expected_costs: ExpectedCosts
    one_dial_written_at: Locus | None
    matched: MatchedSettings
    least_regret: LeastRegret


def tradeoff(loaded: LoadedRun, dials: PolicyEvaluation, writers: Mapping[Kind, Writer], most: float) -> Tradeoff:
    """Compare the dials with one dial, with system lines and with the plain model, on test prompts.

    Args:
        most: the dials' over-refusal on the choice prompts, at which the policies are also compared.
    """
    test = np.flatnonzero(loaded.corpus.rated & loaded.corpus.within("test"))
    single = evaluate_one_dial(loaded, writers, dials.table.probability.max(axis=0))
    lines, reason = ask_under_lines(loaded, loaded.config.steer.system_lines, test)
    shown = {"two_dials": dials} | ({"one_dial": single[0]} if single else {})
    without = loaded.behaviour
    plain = evaluate_fixed(
        loaded, [LineResponses("", without.actions, without.correct)], np.arange(len(loaded.prompts))
    )
    written = single[1].direction if single else None
    best = {name: setting_at(one, matched_setting(one, most)) for name, one in shown.items()}
    return Tradeoff(
        frontier={name: [setting_at(one, index) for index in one.front] for name, one in shown.items()},
        system_lines=SystemLines(reason=reason, points=[_of_line(loaded, line, test) for line in lines]),
        hypervolume=_hypervolumes(shown, plain, evaluate_fixed(loaded, lines, test) if lines else None),
        expected_costs=expected_costs(loaded, shown, plain),
        one_dial_written_at=written.locus if written else None,
        matched=MatchedSettings.model_validate({"over_refusal_at_most": most, **best}),
        least_regret=least_regret(loaded, dials),
    )


def _hypervolumes(
    shown: Mapping[str, PolicyEvaluation], plain: PolicyEvaluation, lines: PolicyEvaluation | None
) -> Hypervolume:
    """Return the hypervolume of every policy; the plain model is a point of each, since a dial can be off."""
    extended = {name: one.with_plain() for name, one in shown.items()}
    fronts = {name: np.append(shown[name].front, len(one.surface.settings) - 1) for name, one in extended.items()}
    volumes = {name: frontier_volume(one.surface.at(fronts[name]), one.test) for name, one in extended.items()}
    if lines is not None:
        volumes["system_lines"] = frontier_volume(lines.with_plain().surface, lines.with_plain().test)
    volumes["plain"] = frontier_volume(plain.surface, plain.test)
    found = {name: volume.estimate for name, volume in volumes.items()}
    return Hypervolume.model_validate(
        {
            "axes": AXES,
            "reference": REFERENCE,
            "n": {name: len(risk.rows) for name, risk in plain.test.items()},
            **volumes,
            "two_minus": {
                name: Estimate(found["two_dials"] - volume, nan, nan)
                for name, volume in found.items()
                if name != "two_dials"
            },
        }
    )


def expected_costs(inputs: RunInputs, shown: Mapping[str, PolicyEvaluation], plain: PolicyEvaluation) -> ExpectedCosts:
    """Compare least expected costs on test of two dials with those of the other policies; each dial can be off."""
    costs = _costs(inputs, shown["two_dials"])
    policies = {name: one.with_plain() for name, one in shown.items()} | {"plain": plain}
    found = {name: least_losses(one.surface, one.choice, one.test, costs) for name, one in policies.items()}
    groups, two = inputs.corpus.groups, found["two_dials"]
    saved = {name: cost_saved(two, other, groups) for name, other in found.items() if other is not two}
    return ExpectedCosts(
        costs=costs,
        ratios=list(COST_RATIOS),
        policies={name: None if np.isnan(cost := each.expected_cost()) else cost for name, each in found.items()},
        saved=saved,
    )


def _costs(inputs: RunInputs, dials: PolicyEvaluation) -> dict[str, float]:
    """Return the given costs that the dials can save, or equal ones."""
    given = inputs.config.steer.costs
    return reachable_costs(dict.fromkeys(COST_KEYS, 1.0) if given is None else given.model_dump(), dials.table.dials)


def least_regret(inputs: RunInputs, dials: PolicyEvaluation) -> LeastRegret:
    """Return the cheapest setting on the choice prompts, its cost on test, and its regret against the least there."""
    costs = _costs(inputs, dials)
    on_choice = expected_cost(rates_of(dials.surface, dials.choice), costs)
    near = np.abs(dials.surface.settings - 0.5).sum(axis=1)
    index = int(np.lexsort((near, on_choice.round(9)))[0])
    on_test = expected_cost(rates_of(dials.surface, dials.test), costs)
    here = setting_at(dials, index)
    return LeastRegret(
        thresholds=here.thresholds,
        choice=here.choice,
        test=here.test,
        costs=costs,
        cost=float(on_test[index]),
        regret=float(on_test[index] - on_test.min()),
    )


def _of_line(inputs: RunInputs, line: LineResponses, rows: Int[np.ndarray, " rows"]) -> SystemLine:
    labels = [inputs.prompts[row].label for row in rows]
    facts = np.array([inputs.prompts[row].answer is not None for row in rows], dtype=bool)
    right = float(line.right[facts].mean()) if facts.any() else None
    rates = joint_rates(labels, list(line.actions), inputs.corpus.groups[rows])
    return SystemLine(line=line.line, rates=rates, known_facts_right=right)
