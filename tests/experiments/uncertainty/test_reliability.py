"""Reliability diagram: bins hold every answer once, and the interval of the gap covers the true gap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.charts.specification import specification
from experiments.uncertainty.record import reliability
from experiments.uncertainty.text import reliability_diagram, reliability_rows
from tests.support.draws import draws


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=40))
def test_every_answer_is_in_one_bin(given: list[tuple[int, bool]]) -> None:
    confidence, right = np.array([c / 10 for c, _ in given]), np.array([r for _, r in given])
    found = reliability(confidence, right, np.arange(len(given)))
    assert sum(one.right.n or 0 for one in found.bins) == len(given)
    for one in found.bins:
        assert one.start - 1e-9 <= one.confidence <= one.end + 1e-9
        assert one.right.low <= one.right.estimate <= one.right.high
    assert found.gap.estimate == pytest.approx(float((confidence - right).mean()), abs=1e-9)
    assert found.gap.low <= found.gap.estimate <= found.gap.high


def test_perfect_agreement_still_leaves_an_interval() -> None:
    found = reliability(np.ones(20), np.ones(20, dtype=bool), np.arange(20))
    assert found.gap.estimate == 0
    assert found.gap.low < 0 < found.gap.high


@draws(40, 200)
@pytest.mark.slow
def test_the_gap_s_interval_covers_the_truth_as_often_as_it_says(n_draws: int) -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(n_draws):  # groups of two that share their outcome; surer than right by 0.2
        confidence = rng.choice([0.4, 0.8, 1.0], 40).repeat(2)
        right = (rng.random(40).repeat(2)) < confidence - 0.2
        gap = reliability(confidence, right, np.arange(40).repeat(2)).gap
        covered += gap.low <= 0.2 <= gap.high
    assert covered >= {40: 34, 200: 182}[n_draws]  # at 95 %: fewer would be seen in 1 of 200 such tests


def test_the_figure_is_drawn_with_and_without_answers() -> None:
    one = reliability(np.array([0.5, 1.0]), np.array([True, False]), np.arange(2))
    none = reliability(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0, dtype=int))
    rows = reliability_rows({"committed": one, "known_answer": none})
    assert {row["series"] for row in rows} == {"all questions answered (n = 2)"}
    assert [row["x"] for row in rows] == [0.5, 1.0]
    assert "all questions answered" in specification(reliability_diagram({"committed": one, "known_answer": none}))
    assert specification(reliability_diagram({"committed": none, "known_answer": none}))
