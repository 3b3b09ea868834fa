"""One line for each way of declining, and a table where several directions were tried."""

from html import unescape
from pathlib import Path

import pytest

from experiments.dissociation.results import Dissociation
from experiments.dissociation.text import dissociation_blocks, print_dissociation, rank_lines, rank_rows
from experiments.rank.results import RankEffect, RankEstimate, Ranks
from experiments.report.page.document import blocks_html
from probes.statistics.intervals import Estimate
from tests.experiments.dissociation.test_text import FOUND


def estimate(value: float) -> Estimate:
    return Estimate(estimate=value, low=value - 0.1, high=value + 0.1, n=80)


def ranked(rank: int | None, *stopped: float, settled: bool = True, reason: str = "of x") -> RankEstimate:
    effects = tuple(
        RankEffect(k=k, stopped=estimate(share), more=estimate(stopped[-1] - share)) for k, share in enumerate(stopped)
    )
    return RankEstimate(rank=rank, settled=settled, reason=reason, margin=0.15, alpha=0.05, variant="v",
                        best=len(stopped) - 1 if stopped else None, effects=effects,
                        write_direction=estimate(0.3))  # fmt: skip


TWO = Ranks(normative=ranked(2, 0.0, 0.36, 0.95), epistemic=ranked(1, 0.0, 0.99))


def test_a_line_says_what_one_and_what_more_directions_stop() -> None:
    assert rank_lines(TWO) == [
        "Rank of the refusals: 2; one direction stops 36% (the verdict's 30%), 2 directions stop 95%. "
        "The search stopped because of x.",
        "Rank of the abstentions: 1; one direction stops 99%. The search stopped because of x.",
    ]
    assert rank_lines(None) == []


def test_what_is_not_shown_is_not_said() -> None:
    lines = rank_lines(Ranks(normative=ranked(1, 0.0, 0.5, settled=False), epistemic=ranked(0, 0.0, 0.02)))
    assert "at least 1 (that more directions add less than 15% is not shown)" in lines[0]
    assert "0, no direction at this layer is shown to stop more than 15%; one direction stops 2%" in lines[1]
    (line, _) = rank_lines(Ranks(normative=ranked(None, reason="too few"), epistemic=ranked(1, 0.0, 0.99)))
    assert line == "Rank of the refusals: not tested, too few."


def test_the_table_shows_each_number_of_directions_where_several_were_tried() -> None:
    rows = rank_rows(TWO)
    assert rows == [["refusals", "1", "36% [26%, 46%]", "80", "59 [49, 69]"],
                    ["refusals", "2", "95% [85%, 105%]", "80", "0 [-10, 10]"]]  # fmt: skip
    assert rank_rows(None) == rank_rows(Ranks(normative=TWO.epistemic, epistemic=TWO.epistemic)) == []


def test_terminal_and_report_show_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    found = Dissociation.model_validate(FOUND.to_dict() | {"rank": TWO.to_dict()})
    print_dissociation(Path("runs/x"), found)
    for shown in (capsys.readouterr().out, blocks_html(dissociation_blocks(found))):
        assert "2; one direction stops 36% (the verdict's 30%), 2 directions stop 95%." in unescape(shown)
        assert "59 [49, 69]" in shown
    print_dissociation(Path("runs/x"), FOUND)
    assert "Rank" not in capsys.readouterr().out
