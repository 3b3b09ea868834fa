"""The few cases of a matrix that `make test` runs: every value, or every pair of values, is in one."""

from itertools import combinations, product

import pytest

from tests.support.covering import covering, matrix


@pytest.mark.parametrize(
    ("sizes", "strength", "most"),
    [((25, 33), 1, 33), ((3, 4, 5), 1, 5), ((3, 4, 5), 2, 24), ((2, 2, 2), 2, 6), ((4, 3, 2, 2), 2, 14)],
)
def test_every_combination_is_covered_by_few(sizes: tuple[int, ...], strength: int, most: int) -> None:
    cases = list(product(*map(range, sizes)))
    chosen = [cases[i] for i in covering(cases, strength)]
    assert len(chosen) <= most
    for factors in combinations(range(len(sizes)), strength):
        seen = {tuple(case[f] for f in factors) for case in chosen}
        assert seen == set(product(*(range(sizes[f]) for f in factors)))


def test_the_rest_is_slow_and_nothing_is_left_out() -> None:
    mark = matrix("a, b", ["p", "q"], [pytest.param(1, id="one"), pytest.param(2, id="two")])
    names, params = mark.args
    assert names == "a, b"
    assert [(param.id, param.values, [m.name for m in param.marks]) for param in params] == [
        ("p-one", ("p", 1), []), ("p-two", ("p", 2), ["slow"]), ("q-one", ("q", 1), ["slow"]), ("q-two", ("q", 2), []),
    ]  # fmt: skip
