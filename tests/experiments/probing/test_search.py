"""Searches among candidates with given effects: what is measured, and what is chosen."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from experiments.probing.results import KEPT
from experiments.probing.selection import (
    TIE,
    Candidate,
    Screen,
    choose_known,
    confirmed,
    floored,
    run_searches,
    screening,
    search,
    select,
)
from experiments.responses.divergence import Divergence
from probes.direction import Direction, Locus

N = 12
MAX_KL = 0.1
DIRECTIONS = [
    Direction("d", np.eye(4, dtype=np.float32)[0], Locus("resid_post", i, "post_last"), 1.0, 0.0) for i in range(N)
]


def estimated(direction: Direction, bypass: float, induce: float) -> Candidate:
    return Candidate(direction, bypass_floored=float(bypass), induce=float(induce))


class Model:
    """Candidates with given effects; counts what is measured."""

    def __init__(self, bypass: np.ndarray, induce: np.ndarray, kl: np.ndarray) -> None:
        self.bypass, self.induce, self.kl = bypass, induce, kl
        self.effects_of, self.calls = list[int](), 0

    def effects(self, directions: Sequence[Direction]) -> list[Candidate]:
        self.calls += 1
        self.effects_of += [d.locus.layer for d in directions]
        bypass = [self.bypass[[d.locus.layer]] for d in directions]
        induce = [float(self.induce[d.locus.layer]) for d in directions]
        return [Candidate(d, float(b[0]), floored(b), i) for d, b, i in zip(directions, bypass, induce, strict=True)]

    def divergence(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        self.calls += 1
        return [replace(c, kl=Divergence(*[float(self.kl[c.direction.locus.layer])] * 4)) for c in candidates]

    def estimate(self, direction: Direction) -> Candidate:
        return estimated(direction, self.bypass[direction.locus.layer], self.induce[direction.locus.layer])

    def every(self) -> list[Candidate]:
        return self.divergence(self.effects(DIRECTIONS))


def random_model(rng: np.random.Generator) -> Model:
    induce = rng.standard_normal(N) + rng.choice([-5.0, -1.0, 1.0])
    return Model(3 * rng.standard_normal(N), induce, rng.random(N) * rng.choice([0.1, 0.2, 1.0]))


def choose(model: Model, *, screened: bool) -> tuple[Candidate, bool]:
    begun = search(DIRECTIONS, MAX_KL, model.estimate if screened else None)
    return run_searches([begun], model.effects, model.divergence)[0]


def test_with_true_estimates_the_choice_is_as_good_as_the_exhaustive_one() -> None:
    """It is usable where any is; its bypass is then within a tie of the least; few candidates are measured."""
    rng, measured = np.random.default_rng(0), list[int]()
    for _ in range(300):
        model = random_model(rng)
        best, usable = select(model.every(), MAX_KL)
        model.effects_of.clear()
        chosen, is_usable = choose(model, screened=True)
        assert is_usable == usable
        assert chosen.bypass_floored <= best.bypass_floored + TIE
        assert len(model.effects_of) == len(set(model.effects_of)) <= N
        measured.append(len(model.effects_of))
    assert np.mean(measured) < N / 2


@pytest.mark.parametrize(
    ("induce", "kl", "chosen"),
    [
        (np.ones(N), np.where(np.arange(N) < 4, 1.0, 0.01), 4),  # the best break the model
        (np.where(np.arange(N) < KEPT, -1.0, 1.0), np.zeros(N), KEPT),  # the best induce less than estimated
    ],
)
def test_the_next_are_measured_where_the_best_miss_a_rule(induce: np.ndarray, kl: np.ndarray, chosen: int) -> None:
    model = Model(np.arange(N, dtype=float), induce, kl)
    begun = search(DIRECTIONS, MAX_KL, lambda d: estimated(d, d.locus.layer, 1.0))
    ((found, usable),) = run_searches([begun], model.effects, model.divergence)
    assert (found.direction.locus.layer, usable) == (chosen, True)
    assert model.effects_of == list(range(2 * KEPT))
    none = Model(np.arange(N, dtype=float), np.ones(N), np.ones(N))
    assert choose(none, screened=True)[1] is False
    assert sorted(none.effects_of) == list(range(N))


def test_an_estimate_that_is_not_finite_comes_last() -> None:
    model = Model(np.array([np.nan, *range(1, N)], dtype=float), np.ones(N), np.zeros(N))
    assert choose(model, screened=True)[0].direction.locus.layer == 1
    assert 0 not in model.effects_of


@pytest.mark.parametrize("screened", [False, True])
def test_searches_that_share_their_passes_choose_as_each_alone(screened: bool) -> None:
    rng = np.random.default_rng(1)
    model = random_model(rng)
    subsets = [sorted(rng.permutation(N)[: rng.integers(1, N + 1)].tolist()) for _ in range(20)]
    draws = [[DIRECTIONS[i] for i in subset] for subset in subsets]
    estimate = model.estimate if screened else None
    alone = [run_searches([search(d, MAX_KL, estimate)], model.effects, model.divergence)[0] for d in draws]
    calls, model.calls = model.calls, 0
    together = run_searches([search(d, MAX_KL, estimate) for d in draws], model.effects, model.divergence)
    for (c, usable), (by_itself, is_usable) in zip(together, alone, strict=True):
        assert (c.direction.locus.layer, usable) == (by_itself.direction.locus.layer, is_usable)
    assert model.calls < calls / 4


def test_a_choice_among_known_candidates_measures_nothing() -> None:
    model = random_model(np.random.default_rng(2))
    every = model.every()
    assert choose_known(every, MAX_KL, None) == select(every, MAX_KL)


class _Given(Screen):
    """A screen with given estimates."""

    def __init__(self, estimates: np.ndarray) -> None:
        object.__setattr__(self, "given", estimates)

    def estimate(self, direction: Direction) -> Candidate:
        return estimated(direction, *self.given[direction.locus.layer])  # type: ignore[attr-defined]


def test_first_order_is_used_only_where_it_ranks_as_exact_effects_do() -> None:
    rng = np.random.default_rng(3)
    model = random_model(rng)
    every = model.every()
    exact = np.array([(c.bypass_floored, c.induce) for c in every])
    noisy = exact + 0.1 * rng.standard_normal(exact.shape)
    good = screening(_Given(noisy), every)
    assert good.used
    assert good.bypass_correlation == pytest.approx(np.corrcoef(exact[:, 0], noisy[:, 0])[0, 1])
    for column in (0, 1):
        wrong = noisy.copy()
        wrong[:, column] = rng.standard_normal(N)
        assert not screening(_Given(wrong), every).used
        constant = noisy.copy()
        constant[:, column] = 1.0
        assert not screening(_Given(constant), every).used
    assert not screening(_Given(noisy), every[:KEPT]).used  # nothing to spare
    bad = screening(_Given(rng.standard_normal(exact.shape)), every)
    permuted = (good.bypass_correlation, good.induce_correlation)
    assert confirmed(good, good) == good.model_copy(update={"permuted": permuted})
    assert not confirmed(good, bad).used
    assert not confirmed(bad, good).used
