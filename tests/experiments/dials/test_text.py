"""Text and figure of `refusal steer`, from a record like those it writes."""

from typing import Any

import pytest

from experiments.dials.results import ExpectedCosts, SteerResult, SystemLine, SystemLines
from experiments.dials.surface import MEASURED, RISKS
from experiments.dials.text import (
    RISK_NAMES,
    certified_lines,
    dial_lines,
    pareto,
    policy_table,
    steer_lines,
    steer_tables,
    two_dials_line,
    warning_lines,
)
from probes.statistics.intervals import Estimate
from scoring.rates import RATES, JointRates
from tests.support.report_page import blocks_html

SHARE = {"estimate": 0.9, "low": None, "high": None}
MORE = {"estimate": 0.2, "low": None, "high": None}
SAVED = {"estimate": 0.2, "low": 0.1, "high": 0.3}
AT = {"over_refusal": 0.02, "missed_harm": 0.0, "overconfidence": 0.08, "uncertain_refused": 0.03,
         "facts_lost": None, "uncertain_mistaken": 0.11}  # fmt: skip
POINT = {"thresholds": {"normative": 0.3, "epistemic": 0.4}, "choice": AT, "test": AT}
JOINT: dict[str, Any] = {name: {"estimate": 0.2, "low": 0.1, "high": 0.3} for name in RATES}
RISK = {"limit": 0.05, "certified": True, "failures": 0, "n": 63, "at_most": 0.046, "best_reachable": 0.046,
        "n_needed": 59, "n_at_this_rate": 59}  # fmt: skip


def record(dials: tuple[str, ...] = ("normative", "epistemic"), **risks: dict[str, Any]) -> SteerResult:
    certified = {"rule": "largest safety margin", "part": "calibration", "confidence": 0.95, "jointly": [],
                 "settings_certified": 0, "settings_tried": 9, "risks": risks}  # fmt: skip
    return SteerResult.model_validate({
        "dials": {kind: {"threshold": tau} for kind, tau in zip(dials, (0.3, 0.4), strict=False)},
        "certified": certified,
        "frontier": {"two_dials": [POINT], "one_dial": [POINT]},
        "system_lines": {"reason": "", "points": [{"line": "<b>be kind", "rates": JOINT, "known_facts_right": 0.5}]},
        "hypervolume": {"n": {"over_refusal": 342, "missed_harm": 172, "overconfidence": 176}, "two_dials": SHARE,
                        "one_dial": SHARE, "plain": SHARE, "two_minus": {"one_dial": MORE}},
        "expected_costs": {"costs": {"over_refusal": 1.0}, "ratios": [1.0], "saved": {"one_dial": SAVED},
                           "policies": {"two_dials": 0.05, "one_dial": 0.25, "plain": None}},
        "matched": {"over_refusal_at_most": 0.01, "two_dials": POINT, "one_dial": POINT},
        "least_regret": POINT | {"costs": {"over_refusal": 1.0, "missed_harm": 10.0, "overconfidence": 2.0},
                                 "cost": 0.1, "regret": 0.01},
    })  # fmt: skip


def test_limits_certified_at_once_are_certified_together() -> None:
    one = record(over_refusal=RISK, missed_harm=RISK)
    both = one.certified.model_copy(update={"jointly": ["over_refusal", "missed_harm"]})
    for certificate, how in ((one.certified, "each"), (both, "together")):
        assert f"Certified with 95% confidence, {how}, on calibration" in certified_lines({}, certificate)[1]


def test_everything_is_said() -> None:
    failing = RISK | {"certified": False, "failures": 3, "at_most": 0.12, "n_at_this_rate": 458}
    few = RISK | {"certified": False, "n": 10, "at_most": 0.26, "best_reachable": 0.26}
    bought = RISK | {"limit": 0.1, "failures": 2, "n": 70, "at_most": 0.087}
    risks = {"over_refusal": RISK, "missed_harm": failing, "uncertain_refused": bought, "facts_lost": few}
    said = "\n".join(line.text for line in steer_lines(record(**risks)))
    for part in (
        "normative 0.300, epistemic 0.400 (largest safety margin on the choice prompts)",
        "Certified with 95% confidence, each, on calibration prompts, one a group: over-refusal at most 5% (0 of 63",
        "uncertain prompts refused at most 10% (2 of 70 failed: at most 8.7%)",
        "missed harm at most 5%: 3 of 63 failed, so at most 12.0%; at this rate it takes about 458",
        "known facts lost at most 5% takes 59 independent prompts of which none fails; there are 10, good for 26.0%",
        "Two dials do better than one, least expected cost of a mistake on test prompts: the dials 0.050, one dial 0",
        "saved +0.200 [+0.100, +0.300]",
        "more of them make it larger, so it is no test): the dials 0.900; one dial 0.900; no change 0.900.",
        "costs over-refusal 1, missed harm 10, uncertain prompts answered firmly or refused 2",
    ):
        assert part in said, part
    hopeless = RISK | {"certified": False, "failures": 9, "at_most": 0.2, "n_at_this_rate": None}
    assert any("no number is enough at this rate" in line.text for line in steer_lines(record(over_refusal=hopeless)))


def test_every_risk_stands_in_the_table_of_policies() -> None:
    assert set(RISK_NAMES) == set(MEASURED)
    shown = record(over_refusal=RISK)
    rates = JOINT | {"uncertain_refused": JOINT["over_refusal"] | {"estimate": 0.4}}
    refusing = SystemLine(line="be kind", rates=rates, known_facts_right=0.5)
    table = policy_table(shown.matched, SystemLines(points=[refusing]))
    head, rows = table.columns, table.rows
    assert {len(row) for row in rows} == {len(head)}
    assert head[1:] == [*RISKS, "known facts right"]
    assert all("%" in cell or cell == "-" for row in rows for cell in row[1:])
    column = head.index("uncertain_refused")
    assert [row[column] for row in rows] == ["3.0%", "3.0%", "40.0%"]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.03, 0.1, "Two dials do better than one, "), (-0.01, 0.03, "not shown to do better than one"),
     (0.001, 0.03, "not shown to do better than one"), (-0.01, 0.01, "do not do better than one"),
     (-0.2, -0.1, "One dial does better")],
)  # fmt: skip
def test_two_dials_are_praised_only_where_they_surely_save_more(low, high, said) -> None:
    saved = Estimate(estimate=(low + high) / 2, low=low, high=high)
    policies = {"two_dials": 0.1, "one_dial": 0.2}
    costs = ExpectedCosts(costs={}, ratios=[1.0], policies=policies, saved={"one_dial": saved})
    assert said in two_dials_line(costs)


def refused_more(**risks: dict[str, Any]) -> SteerResult:
    """As on an organism with oblique writes: a limit that nothing meets, and a rate that the dials make worse."""
    worse = {"before": 0.0, "after": 0.36, "change": {"estimate": 0.36, "low": 0.3, "high": 0.42}}
    better = {"before": 0.5, "after": 0.1, "change": {"estimate": -0.4, "low": -0.5, "high": -0.3}}
    made = record(**risks).to_dict() | {"changes": {"over_refusal": better, "uncertain_refused": worse}}
    made["certified"] |= {"settings_within_limits": 0, "settings_tried": 2450}
    return SteerResult.model_validate(made)


def test_what_no_setting_meets_alone_or_together_and_what_gets_worse_is_said_first() -> None:
    unmet = RISK | {"limit": 0.1, "certified": False, "best_on_choice": 0.345}
    result = refused_more(over_refusal=RISK | {"best_on_choice": 0.0}, uncertain_refused=unmet)
    said = [line.text for line in steer_lines(result)]
    assert said[:2] == [
        "None of 2,450 settings meets the limit on uncertain prompts refused on the choice prompts: at most 10% is "
        "asked, the best is 34.5%.",
        "The dials make a rate worse on test prompts: uncertain prompts refused, 0.0% before and 36.0% with the dials "
        "(change +36.0% [+30.0%, +42.0%]).",
    ]
    assert said[2].startswith("Thresholds: ")
    assert "safety margin" not in " ".join(said)
    assert said[2:] == dial_lines(result)
    within = RISK | {"best_on_choice": 0.01}
    together = "None of 2,450 settings meets all limits together on the choice prompts."
    assert warning_lines(refused_more(over_refusal=within, missed_harm=within))[0] == together
    assert warning_lines(record(over_refusal=within)) == []


def test_the_page_has_it_escaped_and_the_picture_its_n() -> None:
    page = blocks_html(steer_tables(record(over_refusal=RISK)))
    assert "<b>" not in page
    assert "&lt;b&gt;be kind" in page
    chart = pareto(record(over_refusal=RISK), *[JointRates.model_validate(JOINT)] * 2).to_dict()
    for panel in chart["hconcat"]:
        [points] = [layer for layer in panel["layer"] if layer["mark"]["type"] == "point"]
        assert all("n = " in points["encoding"][axis]["title"] for axis in "xy")


def test_without_a_second_dial_or_any_nothing_is_said_of_them() -> None:
    assert not any("than one" in line.text for line in steer_lines(record(("normative",), over_refusal=RISK)))
    assert steer_lines(SteerResult(certified=None)) == []
    assert steer_tables(SteerResult()) == []
