"""The trade-off of a run, ready for JSON: frontiers, volumes, rates at matched declining, the point of least regret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.dials.operating_point import cost, within_reach
from experiments.dials.policies import Counted, fixed, lines_counted, matched, one_dial, point_record
from experiments.dials.surface import AXES, rates_of
from experiments.dials.system_lines import UnderLine, under_lines
from experiments.dials.tradeoff import N_DRAWS, REFERENCE, Policy, compare, draw_groups, policy, volume_record
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.inputs import RunInputs
from scoring.rates import joint_rates, rates_record
from steering.writer import Writer


def tradeoff(loaded: LoadedRun, dials: Counted, writers: Mapping[Kind, Writer], most: float) -> dict[str, Any]:
    """Compare the dials with one dial, with system lines and with none, on test prompts.

    Args:
        most: the share of benign prompts that is declined at the dials' own point, on the prompts that choose: where
            the policies are compared besides.
    """
    test = np.flatnonzero(loaded.corpus.within("test"))
    weights = np.zeros((len(loaded.prompts), N_DRAWS))
    weights[test] = draw_groups(loaded.corpus.groups[test], N_DRAWS, loaded.config.seed)
    plain = _policy("plain", fixed(loaded, [loaded.behaviour.actions[test]], [loaded.behaviour.correct[test]], test),
                    None, weights)  # fmt: skip
    single = one_dial(loaded, writers, dials.table.probability.max(axis=0))
    lines, reason = under_lines(loaded, loaded.config.steer.system_lines, test)
    shown = {"two_dials": dials} | ({"one_dial": single[0]} if single else {})
    policies = {name: _policy(name, counted, counted.front, weights).beside(plain) for name, counted in shown.items()}
    if lines:
        policies["system_lines"] = _policy("system_lines", lines_counted(loaded, lines, test), None, weights).beside(
            plain
        )
    policies["plain"] = plain
    two = policies["two_dials"]
    return {
        "frontier": {name: [point_record(c, index) for index in c.front] for name, c in shown.items()},
        "system_lines": {"reason": reason, "points": [_of_line(loaded, line, test) for line in lines]},
        "hypervolume": {
            "axes": list(AXES),
            "reference": list(REFERENCE),
            "n": {name: len(risk.rows) for name, risk in dials.test.items()},
            **{name: volume_record(each) for name, each in policies.items()},
            "two_minus": {name: compare(two, each) for name, each in policies.items() if each is not two},
        },
        "one_dial_written_at": vars(single[1].direction.locus) if single and single[1].direction else None,
        "matched": {"over_refusal_at_most": most}
        | {name: point_record(counted, matched(counted, most)) for name, counted in shown.items()},
        "least_regret": least_regret(loaded, dials),
    }


def least_regret(inputs: RunInputs, dials: Counted) -> dict[str, Any]:
    """Return the cheapest point, as the prompts that choose tell it, and its cost on test beside the least there."""
    given = inputs.config.steer.costs
    costs = within_reach(dict.fromkeys(AXES, 1.0) if given is None else given.model_dump(), dials.table.dials)
    on_choice = cost(rates_of(dials.surface, dials.choice), costs)
    near = np.abs(dials.surface.settings - 0.5).sum(axis=1)
    index = int(np.lexsort((near, on_choice.round(9)))[0])
    on_test = cost(rates_of(dials.surface, dials.test), costs)
    record = point_record(dials, index)
    return record | {"costs": costs, "cost": float(on_test[index]), "regret": float(on_test[index] - on_test.min())}


def _policy(name: str, counted: Counted, index: np.ndarray | None, weights: np.ndarray) -> Policy:
    surface = counted.surface if index is None else counted.surface.at(index)
    return policy(name, surface, counted.test, weights)


def _of_line(inputs: RunInputs, line: UnderLine, rows: np.ndarray) -> dict[str, Any]:
    labels = [inputs.prompts[row].label for row in rows]
    facts = np.array([inputs.prompts[row].answer is not None for row in rows], dtype=bool)
    right = float(line.right[facts].mean()) if facts.any() else None
    rates = rates_record(joint_rates(labels, list(line.actions), inputs.corpus.groups[rows])).to_dict()
    return {"line": line.line, "rates": rates, "known_facts_right": right}
