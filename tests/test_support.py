"""What tests stand on: the few cases of a matrix cover it, and the committed run is what its script makes again."""

from itertools import combinations, product
from pathlib import Path

import pytest

from experiments.run.config import load_config
from tests.support.covering import covering, matrix
from tests.support.finished_run import FIXTURES
from tests.support.make_small_run import EVERY, PLACE, SETTINGS, some_prompts


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


def test_the_committed_run_is_small() -> None:
    sizes = [path.stat().st_size for path in (FIXTURES / "small_run").rglob("*") if path.is_file()]
    assert max(sizes) < 500_000
    assert sum(sizes) < 1_700_000


def test_the_small_run_was_made_with_the_settings_and_prompts_of_its_script() -> None:
    """If this fails: python -m tests.support.make_small_run."""
    assert load_config(PLACE / "config.yaml") == load_config(Path("configs/quickstart.yaml"), list(SETTINGS))
    assert (PLACE / "prompts.jsonl").read_text().splitlines() == some_prompts(EVERY)
