"""Simulated: the interval over both halves, each under the other's direction, covers the effect of these directions.

What is estimated is the effect on new prompts of the two directions that were fitted, half of it each. The effect of a
direction fitted on new prompts varies more, in a single split, too: no interval of one run covers that.
"""

import numpy as np
import pytest

from probes.statistics.intervals import clopper_pearson, mean_over_groups

D, GROUPS, RUNS, ALPHA = 8, 15, 1000, 0.05


def streams(rng: np.random.Generator, groups: int, size: int) -> np.ndarray:
    """Return streams of declined prompts, `size` of each group that share half of their variance."""
    noise = rng.standard_normal((groups, 1, D)) + rng.standard_normal((groups, size, D))
    return noise / np.sqrt(2) + 1.5 * np.eye(D)[0]


def stopped(tested: np.ndarray, declined: np.ndarray, answered: np.ndarray) -> np.ndarray:
    """Return which declines end with the direction of other prompts set to their answering mean: x[0] below 0.75."""
    r = declined.reshape(-1, D).mean(axis=0) - answered.mean(axis=0)
    r /= np.linalg.norm(r)
    along = (answered @ r).mean() - tested @ r
    return (tested + along[..., None] * r)[..., 0] < 0.75


@pytest.mark.simulation
@pytest.mark.parametrize("size", [1, 4, 8])
def test_coverage_of_the_effect_of_both_halves(size: int) -> None:
    rng, covered, truths = np.random.default_rng(size), 0, list[float]()
    fresh, groups = streams(rng, 2000, 1), np.repeat(np.arange(2 * GROUPS), size)
    for _ in range(RUNS):
        halves = [streams(rng, GROUPS, size) for _ in range(2)]
        answered = [rng.standard_normal((GROUPS * size, D)) for _ in range(2)]
        others = list(zip(halves[::-1], answered[::-1], strict=True))
        hits = [stopped(own, *other) for own, other in zip(halves, others, strict=True)]
        estimate = mean_over_groups(np.concatenate(hits).reshape(-1), groups)
        interval = clopper_pearson(estimate * 2 * GROUPS, 2 * GROUPS, ALPHA)
        truths.append(float(np.mean([stopped(fresh, *other).mean() for other in others])))
        covered += interval.low <= truths[-1] <= interval.high
    assert np.ptp(truths) > 0.2  # directions of so few prompts differ
    assert covered / RUNS >= 1 - ALPHA
