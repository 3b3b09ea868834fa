"""The rank of planted mechanisms, functions of coordinates of noise: found, and never more than there is."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from experiments.rank import search as search_module
from experiments.rank.measure import judge_growth, measure_growth
from experiments.rank.results import Growth
from experiments.rank.search import SearchedDirections, SpanOutcomes, Streams, candidates, search

GAP = 4.0  # between a coordinate that is off and one that is on, in standard deviations of the noise
Rule = Callable[[np.ndarray], np.ndarray]  # coordinates (n, k) to declines (n,) bool
PARTS = {"train": 1.0, "validation": 0.43, "test": 1.0}  # the shares of the quickstart
MARGIN, ALPHA = 0.15, 0.05
Patterns = Sequence[Sequence[int]]
ONE, TOGETHER = [[1]], [[1, 1]]
REDUNDANT = [[1, 0], [0, 1], [1, 1]]  # a third carries the first copy, a third the second, a third both
EITHER, ANY_OF_THREE = [[1, 0], [0, 1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
CASES = {"one": (ONE, 1), "together": (TOGETHER, 1), "redundant": (REDUNDANT, 2), "either": (EITHER, 2),
         "any of three": (ANY_OF_THREE, 3)}  # fmt: skip


def any_above(threshold: float) -> Rule:
    return lambda z: (z > threshold * GAP).any(axis=1)


@dataclass
class Planted:
    """Samples of each part, and how they react to an ablation; half of a part's prompts carry other patterns."""

    patterns: Sequence[Sequence[float]]  # the coordinates, in gaps: 1 is on; each pattern equally often
    rule: Rule
    n: int  # decliners for testing, about
    rng: np.random.Generator
    d_model: int = 64
    a_group: int = 1  # prompts a group, which share a pattern
    nothing: bool = False  # behaviour is drawn at random and follows no coordinate
    others: Sequence[Sequence[float]] = ()  # patterns of the other half; by default none is on
    layer: int = 3

    def __post_init__(self) -> None:
        k = len(self.patterns[0])
        self.planted = np.linalg.qr(self.rng.standard_normal((self.d_model, k)))[0].T
        self.X, self.declined, self.group = {}, {}, {}
        for part, share in PARTS.items():
            n_groups = -(-round(2 * share * self.n) // self.a_group)
            halves = self.patterns, self.others or [[0] * k]
            on = np.array([halves[i % 2][i // 2 % len(halves[i % 2])] for i in range(n_groups)])
            group = np.repeat(np.arange(n_groups), self.a_group)
            noise = self.rng.standard_normal((len(group), self.d_model))
            self.X[part] = noise + 3.0 + GAP * on[group] @ self.planted
            declined = self._declines(self.X[part])
            self.declined[part] = self.rng.permutation(declined) if self.nothing else declined
            self.group[part] = group
        self.off = self.X["train"][~self.declined["train"]].mean(axis=0)
        self.first = self.X["train"][self.declined["train"]].mean(axis=0) - self.off

    def _declines(self, X: np.ndarray) -> np.ndarray:
        return self.rule((X - 3.0) @ self.planted.T)

    def _ablated(self, part: str, basis: np.ndarray) -> np.ndarray:
        return self.X[part] + ((self.off - self.X[part]) @ basis.T) @ basis

    def groups(self, part: str) -> np.ndarray:
        return self.group[part][self.declined[part]]

    def outcomes(self, part: str, basis: np.ndarray, among: np.ndarray) -> SpanOutcomes:
        still = np.ones(len(among), dtype=bool)
        if not self.nothing:
            still = self._declines(self._ablated(part, basis)[self.declined[part]][among])
        return SpanOutcomes(~still, still)

    def streams(self, part: str, basis: np.ndarray) -> list[Streams]:
        declined = self.declined[part]
        return [Streams(self.layer, self._ablated(part, basis), declined, np.full(len(declined), "all"))]

    def scores(self, bases: Sequence[np.ndarray]) -> np.ndarray:
        every = np.arange(len(self.groups("validation")))
        return np.array([self.outcomes("validation", basis, every).still.mean() for basis in bases])


def planted(patterns: Patterns, n: int, seed: int, rule: Rule | None = None, **more: object) -> Planted:
    return Planted(patterns, rule or any_above(0.5), n, np.random.default_rng(seed), **more)


def ranked(model: Planted, k: int | None = None) -> tuple[SearchedDirections, Growth]:
    found = search(model, model.first, MARGIN, ALPHA, k)
    return found, measure_growth(model, found, MARGIN, ALPHA)


@pytest.mark.parametrize(("patterns", "rank"), CASES.values(), ids=CASES)
def test_the_planted_rank_is_found(patterns, rank) -> None:
    model = planted(patterns, 200, seed=1)
    found, growth = ranked(model)
    assert growth.rank == rank
    assert growth.settled
    assert growth.effects[rank].stopped.estimate > 0.95
    if rank > 1:
        assert growth.effects[rank - 1].stopped.estimate < 0.8
        span = found.basis[:rank]
        assert np.linalg.norm(model.planted @ span.T, axis=1).min() > 0.8  # each coordinate lies in the subspace
    np.testing.assert_allclose(found.basis @ found.basis.T, np.eye(len(found.basis)), atol=1e-10)


def test_class_means_alone_miss_a_redundant_copy(monkeypatch) -> None:
    """With the sum of two copies ablated, their carriers decline with opposite signs: the means are equal."""

    def by_means(*given: object, **more: object) -> list[object]:
        return [one for one in candidates(*given, **more) if "means" in one.fitted_by]

    def right() -> int:
        models = (planted(REDUNDANT, 200, seed, any_above(0.35), d_model=512) for seed in range(3))
        return sum(ranked(model)[1].rank == 2 for model in models)

    assert right() == 3
    monkeypatch.setattr(search_module, "candidates", by_means)
    assert right() < 3


def test_a_tilted_first_direction_is_not_two(monkeypatch) -> None:
    """A write direction at 45 degrees to the true one needs another to mend it, but one direction does it all."""

    def tilted(seed: int) -> Planted:
        model = planted(ONE, 100, seed)
        aside = np.linalg.qr(np.vstack([model.planted, model.rng.standard_normal(64)]).T)[0].T[1]
        model.first = model.planted[0] + aside
        return model

    for seed in range(3):
        found, growth = ranked(tilted(seed))
        assert len(found.basis) > 1
        assert growth.rank == 1
        assert growth.effects[1].stopped.estimate > 0.95
        assert found.fits[0].stopped_on_validation < 0.8
    monkeypatch.setattr(search_module, "_refitted", lambda model, basis: basis)
    assert [ranked(tilted(seed))[1].rank for seed in range(3)] == [2, 2, 2]


def test_a_product_of_two_coordinates_is_found_though_the_class_means_are_equal() -> None:
    """Declines where the signs differ. The write direction is noise and stops few; one direction stops all."""
    unlike, alike = [[0.5, -0.5], [-0.5, 0.5]], [[0.5, 0.5], [-0.5, -0.5]]
    for seed in range(3):
        found, growth = ranked(planted(unlike, 100, seed, lambda z: z[:, 0] * z[:, 1] < -0.12 * GAP**2, others=alike))
        assert found.fits[0].stopped_on_validation < 0.4
        assert found.fits[1].fitted_by == "spread"
        assert growth.rank == 1
        assert growth.effects[1].stopped.estimate > 0.95


def test_behaviour_that_follows_nothing_has_rank_zero() -> None:
    found, growth = ranked(planted(ONE, 100, seed=0, nothing=True))
    assert (growth.rank, growth.best, growth.settled) == (0, 0, True)
    assert "add less than 15% on validation prompts" in found.why_stopped
    assert ranked(planted(ONE, 100, seed=0, nothing=True), 4)[0].why_stopped == "4 directions were asked for"


def test_so_many_directions_as_asked_for() -> None:
    for k in (1, 2, 3):
        found, growth = ranked(planted(REDUNDANT, 100, seed=0), k)
        assert len(found.basis) == growth.rank == min(k, 2)
    assert "training prompts still decline, 5 are needed" in found.why_stopped


def test_some_that_never_stop_do_not_raise_the_rank() -> None:
    class Stubborn(Planted):
        def outcomes(self, part: str, basis: np.ndarray, among: np.ndarray) -> SpanOutcomes:
            found, never = super().outcomes(part, basis, among), among % 5 == 0
            return replace(found, stopped=found.stopped & ~never, still=found.still | never)

    found, growth = ranked(Stubborn(ONE, any_above(0.5), 100, np.random.default_rng(0), d_model=256))
    assert len(found.basis) > 1
    assert (growth.rank, growth.effects[1].stopped.estimate) == (1, pytest.approx(0.8, abs=0.02))


def test_one_direction_without_an_effect_does_not_end_the_search() -> None:
    class Together(Planted):
        """Only with three directions ablated do decliners stop."""

        def outcomes(self, part: str, basis: np.ndarray, among: np.ndarray) -> SpanOutcomes:
            stopped = (among % 10 < (9 if len(basis) > 2 else 4)).astype(bool)
            return SpanOutcomes(stopped, ~stopped)

    found, growth = ranked(Together(ONE, any_above(0.5), 200, np.random.default_rng(0)))
    assert [round(fit.stopped_on_validation, 1) for fit in found.fits[:3]] == [0.4, 0.4, 0.9]
    assert growth.rank == 3


def test_test_prompts_take_no_part_in_the_search() -> None:
    class Guarded(Planted):
        def outcomes(self, part: str, basis: np.ndarray, among: np.ndarray) -> SpanOutcomes:
            assert part != "test"
            return super().outcomes(part, basis, among)

    model = Guarded(REDUNDANT, any_above(0.5), 60, np.random.default_rng(0))
    search(model, model.first, MARGIN, ALPHA, None)


def stops(*counts: int, n: int = 100) -> list[np.ndarray]:
    return [np.arange(n) < count for count in counts]


def test_the_rank_is_the_least_number_beyond_which_no_growth_is_shown_and_clustered_prompts_count_once() -> None:
    every = np.arange(100)
    growth = judge_growth(stops(0, 40, 90, 97), 3, every, MARGIN, ALPHA)
    assert (growth.rank, growth.settled) == (2, True)
    assert [round(more.estimate, 2) for more in (effect.more for effect in growth.effects)] == [0.97, 0.57, 0.07, 0.0]
    assert judge_growth(stops(0, 0, 0, 90), 3, every, MARGIN, ALPHA).rank == 3  # nothing stops before all are ablated
    assert judge_growth(stops(0, 10), 1, every, MARGIN, ALPHA).rank == 0
    every = stops(0, 60, 90, n=100)
    assert judge_growth(every, 2, np.arange(100), MARGIN, ALPHA).rank == 2
    clustered = judge_growth(every, 2, np.arange(100) // 10, MARGIN, ALPHA)
    assert (clustered.rank, clustered.settled) == (1, False)


def shares(make: Callable[[int], Planted], repeats: int = 200) -> Counter[int]:
    return Counter(ranked(make(seed))[1].rank for seed in range(repeats))


@pytest.mark.simulation
@pytest.mark.parametrize("a_group", [1, 4])
@pytest.mark.parametrize("n", [40, 100, 200])
@pytest.mark.parametrize(("patterns", "rank"), [*CASES.values(), ([[1]], 0)], ids=[*CASES, "nothing"])
def test_the_rank_is_rarely_above_the_true_one(patterns, rank, n, a_group) -> None:
    found = shares(lambda seed: planted(patterns, n, seed, a_group=a_group, nothing=rank == 0), 100)
    assert sum(count for k, count in found.items() if k > rank) <= 5
    if a_group == 1 and n >= 100:
        assert found[rank] >= 90


@pytest.mark.simulation
def test_false_growth_at_the_margin_is_rare() -> None:
    for n in (40, 100, 200):
        rng, false = np.random.default_rng(0), 0
        for _ in range(2000):
            drawn = rng.random(n)
            stopped = [drawn < share for share in (0.0, 0.7, 0.85)]
            false += judge_growth(stopped, 2, np.arange(n), MARGIN, ALPHA).rank == 2
        assert false / 2000 <= 0.05
