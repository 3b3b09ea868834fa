"""Shares of all prompts from a draw of some: exact where all are measured, unbiased, and covered over groups."""

import numpy as np
import pytest

from probes.statistics.intervals import effective_groups, tango
from probes.statistics.two_phase import TwoPhaseSample, draw
from scoring.rates import grouped_rate

MOST = 24
# sizes of groups; how many of them; correlation within; share of the second stratum, and the shares that hit in both
CASES = {
    "single": ((1,), 160, 0.0, 0.2, (0.3, 0.5)),
    "pairs and eights, one outcome a group": ((2, 8), 40, 1.0, 0.2, (0.3, 0.5)),
    "nothing hits in the drawn stratum": ((1,), 160, 0.0, 0.2, (0.0, 1.0)),
    "fours": ((4,), 40, 0.5, 0.1, (0.95, 0.5)),
}


def drawn(rng, sizes, n_groups, copied, share, hits) -> tuple[TwoPhaseSample, np.ndarray]:
    """Draw a sample in which the first stratum is measured in part; and which prompts hit."""
    groups = np.repeat(np.arange(n_groups), rng.choice(sizes, n_groups))
    own, copies = rng.random((2, len(groups))), rng.random(len(groups)) < copied
    second, level = (np.where(copies, rng.random(n_groups)[groups], each) for each in own)
    strata = second < share
    measured = strata.copy()
    first = np.flatnonzero(~strata)
    measured[first[draw(groups[first], MOST, rng)]] = True
    return TwoPhaseSample(measured, strata, groups), level < np.where(strata, hits[1], hits[0])


def test_with_every_prompt_measured_it_is_the_rate_and_the_difference_of_all() -> None:
    rng = np.random.default_rng(0)
    groups, (a, b) = rng.integers(0, 30, 90), rng.random((2, 90)) < 0.4
    sample = TwoPhaseSample(np.ones(90, dtype=bool), rng.integers(0, 3, 90), groups)
    assert sample.rate(a) == grouped_rate(a, groups)
    assert sample.difference(a, b) == tango(a, b, effective_groups(groups)).counted(90, groups)


def test_a_stratum_of_which_nothing_is_measured_leaves_the_share_unknown() -> None:
    strata = np.arange(8) % 2
    sample, hit = TwoPhaseSample(strata == 0, strata, np.arange(8)), np.ones(8, dtype=bool)
    for found, least in ((sample.rate(hit), 0.0), (sample.difference(hit, ~hit), -1.0)):
        assert (found.known, found.low, found.high, found.n) == (False, least, 1.0, 0)


def test_a_draw_takes_one_of_each_group_before_the_second_of_any() -> None:
    groups = np.array([7] * 50 + [1, 2, 3, 4, 4])
    for seed in range(20):
        sizes = [len(draw(groups, most, np.random.default_rng(seed))) for most in (0, 5, 99)]
        assert sizes == [0, 5, 55]
        assert set(groups[draw(groups, 5, np.random.default_rng(seed))]) == {1, 2, 3, 4, 7}
    seen = np.concatenate([groups[draw(groups, 1, np.random.default_rng(seed))] for seed in range(500)])
    assert np.unique(seen, return_counts=True)[1] == pytest.approx([100] * 5, abs=45)  # whatever a group's size


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_intervals_cover_the_share_and_the_change_of_all(case) -> None:
    rng, times, (*_, share, hits) = np.random.default_rng(1), 300, case
    errors, covered = [], np.zeros(2)
    for _ in range(times):
        sample, hit = drawn(rng, *case)
        rate = sample.rate(hit)
        change = sample.difference(np.where(sample.strata, hit, ~hit), ~sample.strata)  # gained, or lost
        gained, lost = share * hits[1], (1 - share) * hits[0]
        errors.append(rate.estimate - gained - lost)
        covered += rate.low <= gained + lost <= rate.high, change.low <= gained - lost <= change.high
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(times)
    assert (covered / times > 0.93).all()
