"""Trade-off of a run: frontiers, hypervolumes, rates at matched over-refusal, the setting of least regret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments.dials.operating_point import expected_cost, reachable_risks
from experiments.dials.policies import (
    PolicyEvaluation,
    evaluate_fixed,
    evaluate_lines,
    evaluate_one_dial,
    matched_setting,
    setting_at,
)
from experiments.dials.results import Hypervolume, LeastRegret, MatchedSettings, Setting, SystemLine, SystemLines
from experiments.dials.surface import AXES, rates_of
from experiments.dials.system_lines import LineResponses, ask_under_lines
from experiments.dials.tradeoff import (
    N_DRAWS,
    REFERENCE,
    Policy,
    draw_groups,
    evaluate_policy,
    hypervolume_difference,
    hypervolume_estimate,
)
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.inputs import RunInputs
from probes.direction import Locus
from scoring.rates import joint_rates, rates_record
from steering.writer import Writer


class Tradeoff(NamedTuple):
    """The fields of `SteerResult` that compare the dials with other policies."""

    frontier: dict[str, list[Setting]]
    system_lines: SystemLines
    hypervolume: Hypervolume
    one_dial_written_at: Locus | None
    matched: MatchedSettings
    least_regret: LeastRegret


def tradeoff(loaded: LoadedRun, dials: PolicyEvaluation, writers: Mapping[Kind, Writer], most: float) -> Tradeoff:
    """Compare the dials with one dial, with system lines and with the plain model, on test prompts.

    Args:
        most: the dials' over-refusal on the choice prompts, at which the policies are also compared.
    """
    test = np.flatnonzero(loaded.corpus.rated & loaded.corpus.within("test"))
    weights = np.zeros((len(loaded.prompts), N_DRAWS))
    weights[test] = draw_groups(loaded.corpus.groups[test], N_DRAWS, loaded.config.seed)
    without = loaded.behaviour
    undialled = evaluate_fixed(loaded, [without.actions[test]], [without.correct[test]], test)
    plain = _policy("plain", undialled, None, weights)
    single = evaluate_one_dial(loaded, writers, dials.table.probability.max(axis=0))
    lines, reason = ask_under_lines(loaded, loaded.config.steer.system_lines, test)
    shown = {"two_dials": dials} | ({"one_dial": single[0]} if single else {})
    policies = {name: _policy(name, one, one.front, weights).with_plain(plain) for name, one in shown.items()}
    if lines:
        under = evaluate_lines(loaded, lines, test)
        policies["system_lines"] = _policy("system_lines", under, None, weights).with_plain(plain)
    policies["plain"] = plain
    two = policies["two_dials"]
    volumes = {name: hypervolume_estimate(each) for name, each in policies.items()}
    written = single[1].direction if single else None
    best = {name: setting_at(one, matched_setting(one, most)) for name, one in shown.items()}
    return Tradeoff(
        frontier={name: [setting_at(one, index) for index in one.front] for name, one in shown.items()},
        system_lines=SystemLines(reason=reason, points=[_of_line(loaded, line, test) for line in lines]),
        hypervolume=Hypervolume.model_validate({
            "axes": AXES,
            "reference": REFERENCE,
            "n": {name: len(risk.rows) for name, risk in dials.test.items()},
            **volumes,
            "two_minus": {name: hypervolume_difference(two, one) for name, one in policies.items() if one is not two},
        }),
        one_dial_written_at=written.locus if written else None,
        matched=MatchedSettings.model_validate({"over_refusal_at_most": most, **best}),
        least_regret=least_regret(loaded, dials),
    )  # fmt: skip


def least_regret(inputs: RunInputs, dials: PolicyEvaluation) -> LeastRegret:
    """Return the cheapest setting on the choice prompts, its cost on test, and its regret against the least there."""
    given = inputs.config.steer.costs
    costs = reachable_risks(dict.fromkeys(AXES, 1.0) if given is None else given.model_dump(), dials.table.dials)
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


def _policy(
    name: str,
    evaluation: PolicyEvaluation,
    index: Int[np.ndarray, " kept"] | None,
    weights: Float[np.ndarray, "prompts draws"],
) -> Policy:
    surface = evaluation.surface if index is None else evaluation.surface.at(index)
    return evaluate_policy(name, surface, evaluation.test, weights)


def _of_line(inputs: RunInputs, line: LineResponses, rows: Int[np.ndarray, " rows"]) -> SystemLine:
    labels = [inputs.prompts[row].label for row in rows]
    facts = np.array([inputs.prompts[row].answer is not None for row in rows], dtype=bool)
    right = float(line.right[facts].mean()) if facts.any() else None
    rates = rates_record(joint_rates(labels, list(line.actions), inputs.corpus.groups[rows]))
    return SystemLine(line=line.line, rates=rates, known_facts_right=right)
