"""Places between two classes: planted ones are found, with intervals that hold them, and noise moves none."""

import numpy as np
import pytest

from probes.geometry.boundary import place_between

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]


def sample(rng: np.random.Generator, place: float, n: int = 60, d: int = 64, apart: float = 3.0) -> Sample:
    """Return streams, kinds and groups of pairs; what lies between is off the line, too."""
    axis, off = np.eye(d)[0] * apart, np.eye(d)[1] * 2
    kind = np.repeat([0, 1, 2], n)
    mean = np.array([0 * axis, axis, place * axis + off])[kind]
    groups = np.concatenate([np.arange(n) // 2 + 1000 * k for k in range(3)])
    shared = rng.normal(size=(groups.max() + 1, d))[groups] * 0.7
    return mean + shared + rng.normal(size=mean.shape) * 0.7, kind, groups


@pytest.mark.parametrize("place", [0.0, 0.4, 1.0, 1.5])
def test_a_planted_place_is_found(place: float) -> None:
    rng = np.random.default_rng(int(place * 10))
    found = place_between(*sample(rng, place, n=400), rng)
    assert found.estimate == pytest.approx(place, abs=0.08)
    assert found.within(place - 0.25, place + 0.25)


@pytest.mark.parametrize(("place", "n", "apart"), [(0.5, 24, 3.0), (0.0, 60, 2.0), (1.0, 24, 3.0)])
def test_intervals_hold_the_planted_place(place: float, n: int, apart: float) -> None:
    held = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        found = place_between(*sample(rng, place, n=n, d=32, apart=apart), rng)
        held += found.low <= place <= found.high
    assert held >= 108  # 95 % of 120 is 114; fewer than 108 has a probability below .005


def test_noise_in_many_dimensions_pulls_nothing_to_the_middle() -> None:
    """The mean over draws of what is of the second class is 1, though the fitted line is mostly noise."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, kind, groups = sample(rng, 1.0, n=30, d=512, apart=4.0)
        place = place_between(x, kind, groups, rng)
        found.append(place.estimate)
    assert np.mean(found) == pytest.approx(1.0, abs=0.06)


def test_too_few_groups_and_classes_that_are_one() -> None:
    rng = np.random.default_rng(0)
    x, kind, groups = sample(rng, 0.5, n=60)
    few = (kind != 2) | (groups < 2004)
    assert place_between(x[few], kind[few], groups[few], rng) is None
    unbounded = sum(not np.isfinite(place.low) for seed in range(20)
                    if (place := place_between(*sample(np.random.default_rng(seed), 0.5, apart=0.0), rng)))  # fmt: skip
    assert unbounded > 4  # half of the draws find a negative distance
    same = place_between(np.ones_like(x), kind, groups, rng)
    assert same is not None
    assert np.isnan(same.estimate)
    assert (same.low, same.high) == (-np.inf, np.inf)
