"""Ratios of paired times, and the order in which times are taken."""

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.decoding.lockstep import CLOCKS, Arm, lockstep, median_interval, ratio_interval
from probes.statistics.intervals import Estimate
from tests.support.draws import draws


def test_median_interval_is_from_one_order_statistic_to_another() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1.0, 11.0))
    # P(at most 1 of 10 below the median) = 0.011, at most 2: 0.055
    assert median_interval(values) == Estimate(5.5, 2.0, 9.0)


def test_ratio_is_paired() -> None:
    slow_and_fast_moments = np.exp(np.random.default_rng(0).normal(size=50))
    slower = ratio_interval(1.02 * slow_and_fast_moments, slow_and_fast_moments)
    assert slower.limits() == pytest.approx((1.02, 1.02, 1.02))
    one, other = np.exp(np.random.default_rng(1).normal(size=(2, 40)))
    found, turned = ratio_interval(one, other), ratio_interval(other, one)
    reversed_ratio = [1 / turned.estimate, 1 / turned.high, 1 / turned.low]
    assert list(found.limits()) == pytest.approx(reversed_ratio)


def busy_machine(rng: np.random.Generator, ratio: float, pairs: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Draw times whose noise has a heavy tail: now and then another process holds the core for about as long again."""
    held = rng.exponential(0.7, size=(2, pairs)) * (rng.random((2, pairs)) < 0.1)
    times = np.exp(rng.normal(0, 0.03, size=(2, pairs)) + held)
    return ratio * times[0], times[1]


@draws(200, 1000)
def test_interval_covers_at_its_rate_and_no_wrong_ratio(n_draws: int) -> None:
    rng = np.random.default_rng(0)
    found = [ratio_interval(*busy_machine(rng, 1.02)) for _ in range(n_draws)]
    covers = np.mean([one.low <= 1.02 <= one.high for one in found])
    low = {200: 0.91, 1000: 0.94}[n_draws]
    assert low <= covers <= 0.99  # 0.95 at least by the order statistics; 1,000 draws move it by 0.007
    assert np.mean([one.low <= 1.05 <= one.high for one in found]) < 0.05  # control: narrow enough to tell
    assert np.median([one.high - one.low for one in found]) < 0.03


class Toy(nn.Module):
    """A model that says which of two takes its turn."""

    def __init__(self, name: str, notes: list[str]) -> None:
        super().__init__()
        self.base_model, self.name, self.notes = nn.Identity(), name, notes

    def run(self, n_tokens: int) -> None:
        for _ in range(n_tokens):
            self.base_model(torch.zeros(1))
            self.notes.append(self.name)


def toys(change: Callable[[int], int] = int) -> tuple[dict[str, Arm], list[str]]:
    notes: list[str] = []
    models = {name: Toy(name, notes) for name in "ab"}
    arms = {name: Arm(model, lambda n, model=model: model.run(change(n))) for name, model in models.items()}  # type: ignore
    return arms, notes


def test_arms_take_turns_as_often_first_as_second() -> None:
    arms, notes = toys()
    times = lockstep(arms, 8)
    assert all(times[name].shape == (8, len(CLOCKS)) and (times[name] >= 0).all() for name in arms)
    turns = ["".join(notes[i : i + 2]) for i in range(0, 16, 2)]
    assert all({one, two} == {"ab", "ba"} for one, two in zip(turns[::2], turns[1::2], strict=True))


def test_a_turn_is_timed_whole() -> None:
    arms, _ = toys()
    slow = arms["a"].model

    def run(n_tokens: int) -> None:
        time.sleep(0.05)  # what is set up belongs to the first token
        slow.run(n_tokens)

    times = lockstep(arms | {"a": Arm(slow, run)}, 3)
    assert times["a"][0, CLOCKS.index("wall")] >= 0.05
    assert times["a"][1:, CLOCKS.index("wall")].max() < 0.05
    assert times["a"][0, CLOCKS.index("processor")] < 0.05  # it slept


@pytest.mark.parametrize("change", [lambda n: n - 1, lambda n: n + 1], ids=["fewer", "more"])
def test_a_wrong_number_of_passes_is_an_error(change: Callable[[int], int]) -> None:
    arms, _ = toys(change)
    with pytest.raises(RuntimeError, match="passes"):
        lockstep(arms, 4)
