"""The table of outcomes: what is written is read, prompts without an outcome are refused, shares and contrasts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.run.outcomes import PLAIN, Outcomes, acted, contrast, joined, read_outcomes, share, write_outcomes
from extract.errors import UserError

IDS = [f"p{i}" for i in range(6)]


def some() -> Outcomes:
    right, said = np.array([False, False, True]), ["No.", None, "It is a “cat”.\n"]
    outcomes = Outcomes.of(np.array([4, 0, 2]), ["refuse", None, "answer"], right, [3, 0, 9], completion=said)
    return replace(outcomes, onset=np.array([np.nan, np.inf, 1.5]))


def test_the_file_holds_every_row_and_what_is_not_known_stays_unknown(tmp_path: Path) -> None:
    path, bare = tmp_path / "outcomes.parquet" / "effects.parquet", acted(np.array(["abstain"], dtype=object))
    write_outcomes(path, IDS, {(PLAIN, "none"): some(), ("zero/later/all", "ablate_normative"): bare})
    again = read_outcomes(path, IDS)
    assert list(again) == [(PLAIN, "none"), ("zero/later/all", "ablate_normative")]
    for name, column in vars(some()).items():
        np.testing.assert_array_equal(getattr(again[PLAIN, "none"], name), column)
    assert again[PLAIN, "none"].completion.tolist() == [None, "It is a “cat”.\n", "No."]  # of prompts 0, 2, 4
    other = again["zero/later/all", "ablate_normative"]
    assert (other.tokens.tolist(), np.isnan(other.onset).all()) == ([-1], True)


def test_outcomes_of_other_prompts_are_refused(tmp_path: Path) -> None:
    write_outcomes(tmp_path / "x.parquet", IDS, {(PLAIN, "none"): some()})
    with pytest.raises(UserError, match="holds other prompts, such as 'p4'"):
        read_outcomes(tmp_path / "x.parquet", IDS[:3])
    with pytest.raises(UserError, match="run again"):
        read_outcomes(tmp_path / "missing.parquet", IDS)


def test_rows_come_in_the_order_asked_for_and_never_from_another_prompt() -> None:
    assert some().among(np.array([4, 0])).action.tolist() == ["refuse", None]
    with pytest.raises(KeyError, match="1 prompts have no outcome"):
        some().among(np.array([0, 3]))


def test_parts_that_hold_different_prompts_join_in_the_order_of_their_prompts() -> None:
    key = (PLAIN, "none")
    by_fold = [{key: some().among(np.array(rows)), ("late", "x"): some()} for rows in ([2], [0, 4])][::-1]
    again = joined([by_fold[0], {key: by_fold[1][key]}])
    assert {key: of.rows.tolist() for key, of in again.items()} == {key: [0, 2, 4], ("late", "x"): [0, 2, 4]}
    for name, column in vars(some()).items():
        np.testing.assert_array_equal(getattr(again[key], name), column)


def test_the_unjudged_leave_a_share_and_count_against_a_contrast() -> None:
    now, before = acted(np.array(["refuse", None, "answer", "refuse"])), acted(np.array(["refuse"] * 4))
    groups = np.arange(4)
    found = share(now, {"refuse"}, groups, before)
    assert (found.estimate, found.n, found.unjudged) == (pytest.approx(2 / 3), 3, 1)
    assert found.change is not None
    assert found.change.estimate == pytest.approx(-1 / 3)
    assert contrast(now, before, {"refuse"}, groups).estimate == pytest.approx(-0.5)
