"""The verdict on categories: each truth is found, and false claims at the edge of each truth are rare."""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from experiments.categories.judge import Decliners, judge_categories, rank_of
from experiments.categories.results import SetResult
from tests.support import covering
from tests.support.draws import draws

pytestmark = pytest.mark.slow

MARGIN, ALPHA = 0.15, 0.05
NAMES = ("a", "b", "c")
Effects = Mapping[tuple[str, str], float]  # share of the second's declines that the ablation of the first stops
ONE = dict.fromkeys(NAMES, (0.97, 0.97, 0.97))
SEVERAL = dict.fromkeys(NAMES, (0.3, 0.6, 0.97))


def drawn(effects: Effects, common: Mapping[str, tuple[float, ...]], n: int = 120, each: int = 1, seed: int = 0,
          control: float = 0.0) -> dict[str, Decliners]:  # fmt: skip
    """Draw decliners in groups of `each` alike; effects on one prompt are drawn from one number, as on real prompts."""
    rng, found, groups = np.random.default_rng(seed), {}, np.repeat(np.arange(-(-n // each)), each)[:n]
    for name, shares in common.items():
        u = rng.random(-(-n // each))[groups]
        ablated = {other: u < effects[other, name] for other in common}
        found[name] = Decliners(groups, ablated, u < control, tuple(u < share for share in shares))
    return found


def matrix(own: float, cross: float, names: tuple[str, ...] = NAMES) -> dict[tuple[str, str], float]:
    return {(x, y): own if x == y else cross for x in names for y in names}


def judged(effects: Effects, common: Mapping[str, tuple[float, ...]], **more: float) -> SetResult:
    return judge_categories(drawn(effects, common, **more), MARGIN, ALPHA)


def test_each_truth_is_found_also_two_that_share_and_one_apart() -> None:
    assert judged(matrix(0.97, 0.96), ONE).verdict == "one_knob"
    distinct = judged(matrix(0.97, 0.02), SEVERAL)
    assert (distinct.verdict, distinct.rank, distinct.rank_settled) == ("distinct", 3, True)
    assert {pair.verdict for pair in distinct.pairs} == {"distinct"}
    assert judged(matrix(0.03, 0.02), dict.fromkeys(NAMES, (0.02, 0.03, 0.03))).verdict == "no_effect"
    graded = judged(matrix(0.97, 0.5, NAMES[:2]), dict.fromkeys(NAMES[:2], (0.3, 0.97)))
    assert graded.verdict == "partly_shared"
    assert {pair.verdict for pair in graded.pairs} == {"partly_shared"}
    effects = matrix(0.97, 0.02) | {("a", "b"): 0.96, ("b", "a"): 0.96}
    found = judged(effects, {"a": (0.97,) * 3, "b": (0.97,) * 3, "c": (0.02, 0.97, 0.97)})
    assert found.verdict == "partly_shared"
    assert {pair.between: pair.verdict for pair in found.pairs} == {
        ("a", "b"): "one_knob", ("a", "c"): "distinct", ("b", "c"): "distinct"}  # fmt: skip
    assert (found.rank, found.rank_settled) == (2, True)


def test_content_in_each_direction_is_no_second_knob() -> None:
    """Each category's own ablation does more than the others', yet one direction stops all: no sharing is claimed."""
    assert judged(matrix(0.97, 0.5), ONE).verdict == "inconclusive"
    assert judged(matrix(0.97, 0.5, NAMES[:2]), dict.fromkeys(NAMES[:2], (0.97, 0.97))).verdict == "inconclusive"


def test_the_first_common_direction_may_be_that_of_other_categories() -> None:
    """a and b are one knob, each with content of its own; c, d and e another, which the first common direction is."""
    names, effects = ("a", "b", "c", "d", "e"), {}
    for x, y in product(names, repeat=2):
        alike = (x in "ab") == (y in "ab")
        effects[x, y] = 0.02 if not alike else 0.97 if x == y or x not in "ab" else 0.5
    found = judged(effects, {name: (0.02, *[0.97] * 4) if name in "ab" else (0.97,) * 5 for name in names})
    assert {pair.between: pair.verdict for pair in found.pairs}["a", "b"] == "inconclusive"


@pytest.mark.parametrize(("effect", "common"), [(0.4, (0.2, 0.6, 0.97)), (0.6, (0.6, 0.8, 0.97))])
def test_alike_effects_of_a_part_of_what_all_directions_do_are_no_one_knob(effect, common) -> None:
    """Three knobs with shuffled categories: every ablation does the same part, and three directions do all."""
    found = judged(matrix(effect, effect), dict.fromkeys(NAMES, common))
    assert {found.verdict, *(pair.verdict for pair in found.pairs)} == {"inconclusive"}


@pytest.mark.parametrize("how", [{"control": 0.9}, {"n": 12}, {"n": 120, "each": 10}])
def test_labels_that_stop_as_much_few_prompts_and_few_groups_show_nothing(how) -> None:
    assert judged(matrix(0.97, 0.96), ONE, **how).verdict == "inconclusive"


@draws(150, 400)
@covering.matrix(
    "truth, each",
    [
        pytest.param((effects, common, wrong), id=name)
        for name, effects, common, wrong in (
            ("other does less", matrix(0.97, 0.82), ONE, {"one_knob"}),  # by the margin
            ("other does more", matrix(0.85, 1.0), dict.fromkeys(NAMES, (0.85,) * 3), {"one_knob"}),
            ("little effect", matrix(0.15, 0.15), dict.fromkeys(NAMES, (0.15,) * 3), {"one_knob", "no_effect"}),
            ("cross on the margin", matrix(0.9, 0.15), SEVERAL, {"distinct", "partly_shared"}),
            ("alike", matrix(0.65, 0.5), SEVERAL, {"partly_shared", "distinct"}),
            ("two alike", matrix(0.65, 0.5, NAMES[:2]), dict.fromkeys(NAMES[:2], (0.3, 0.97)),
             {"partly_shared", "distinct"}),
            ("one direction does", matrix(0.9, 0.5, NAMES[:2]), dict.fromkeys(NAMES[:2], (0.75, 0.9)),
             {"partly_shared"}),
            ("all together do more", matrix(0.8, 0.8), dict.fromkeys(NAMES, (0.8, 0.95, 0.95)), {"one_knob"}),
        )
    ],
    [1, 4],
)  # fmt: skip
def test_false_claims_are_rare_at_the_edge_of_a_truth(truth, each, n_draws) -> None:
    effects, common, wrong = truth
    false = 0
    for seed in range(n_draws):
        found = judged(effects, common, seed=seed, n=100 * each, each=each)
        false += bool(wrong & {found.verdict, *(pair.verdict for pair in found.pairs)})
    assert false / n_draws <= ALPHA + 2 * (ALPHA * (1 - ALPHA) / n_draws) ** 0.5


def test_the_rank_is_not_overestimated() -> None:
    """Two directions do all but the margin of what three do: rank 3 would be wrong."""
    common = {name: (0.3, 0.82, 0.97) for name in NAMES}
    ranks = [rank_of(drawn(matrix(0.97, 0.1), common, seed=seed), MARGIN, ALPHA)[0] for seed in range(400)]
    assert set(ranks) <= {1, 2, 3}
    assert np.mean(np.array(ranks) > 2) <= ALPHA


def test_the_intervals_of_a_pair_are_its_effects_and_their_paired_differences() -> None:
    [pair] = [pair for pair in judged(matrix(0.97, 0.02), SEVERAL).pairs if pair.between == ("a", "b")]
    effects = {f"ablate {x} on {y}" for x in "ab" for y in "ab"}
    assert set(pair.intervals) == effects | {"own minus other on a", "own minus other on b"}
    assert pair.intervals["ablate a on b"].high < 0.15 < 0.8 < pair.intervals["own minus other on a"].low
