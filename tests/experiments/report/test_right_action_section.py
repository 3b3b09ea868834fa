"""The report's table of right actions: each action, and the dual-use prompts, without and with the dials."""

from experiments.dials.results import DialResult, SteerResult
from experiments.report.page.document import blocks_html
from experiments.report.page.summary import right_action_blocks
from experiments.report.results import RightActions, RunResults
from probes.statistics.intervals import Estimate
from scoring.scorecard_record import DualUseRecord, RightActionCard


def estimate(value: float) -> Estimate:
    return Estimate(estimate=value, low=0.0, high=1.0, n=48)


def card(credit: float) -> RightActionCard:
    middle = DualUseRecord(
        credit=estimate(credit), by_action={"clarify": estimate(credit / 2)},
        answered_firmly=estimate(0.25), declined=estimate(credit / 4),
    )  # fmt: skip
    return RightActionCard(score=Estimate(0.5, 0.4, 0.6, 900), by_action={"refuse": estimate(0.9)}, dual_use=middle)


def results(found: RightActions, *, dials: bool) -> RunResults:
    made = {"normative": DialResult(threshold=0.5)} if dials else {}
    return RunResults.model_construct(right_action=found, dials=made, steer=SteerResult())


FOUND = RightActions(before=card(0.4), after=card(0.8))


def test_every_right_action_and_the_dual_use_prompts_have_a_row() -> None:
    page = blocks_html(right_action_blocks(results(FOUND, dials=True)))
    for told in ("right-action score", "credit where refuse is right", "dual-use: credit of the action taken",
                 "dual-use: credit where clarify is right", "dual-use: prompts answered firmly",
                 "dual-use: prompts declined", "0.40 [0.00, 1.00]", "0.80 [0.00, 1.00]", "20.0%", "with the dials",
                 "900"):  # fmt: skip
        assert told in page


def test_without_dials_there_is_one_column_and_without_scores_no_table() -> None:
    page = blocks_html(right_action_blocks(results(FOUND, dials=False)))
    assert "with the dials" not in page
    assert "0.80" not in page
    assert right_action_blocks(results(RightActions(), dials=True)) == []  # a run of an earlier version


def test_results_keep_them() -> None:
    kept = RunResults.model_construct(right_action=FOUND).to_dict()["right_action"]
    assert RightActions.model_validate(kept) == FOUND
    assert kept["after"]["dual_use"]["declined"]["estimate"] == 0.2
