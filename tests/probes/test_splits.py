"""Splits keep groups together, and every part has its share of every stratum."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from extract.prompts.groups import linked_groups
from probes.contrast import group_split

SHARES = {"train": 0.35, "validation": 0.15, "calibration": 0.15, "test": 0.35}


def _same(groups: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(groups == g).tolist()) for g in groups}


def test_components_are_those_of_a_graph_search_and_empty_values_link_nothing() -> None:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    rng = np.random.default_rng(1)
    columns = [[f"v{v}" for v in rng.integers(0, 90, 100)] for _ in range(2)]
    linked = [[a == b for b in column] for column in columns for a in column]
    adjacency = np.array(linked).reshape(2, 100, 100).any(axis=0)
    _, expected = connected_components(csr_matrix(adjacency))
    assert _same(linked_groups(*columns)) == _same(expected)
    assert len(set(linked_groups([None, None, "", ""]))) == 4


@pytest.fixture
def prompts() -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 7, 400)
    groups = np.repeat(np.arange(400), sizes)[:600]
    strata = np.array(["benign", "harmful", "uncertain"])[groups % 3].tolist()
    order = rng.permutation(600)
    return groups[order], [strata[i] for i in order]


@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_separated_and_every_sample_has_a_part(prompts: tuple[np.ndarray, list[str]], seed: int) -> None:
    groups, strata = prompts
    parts = group_split(groups, strata, SHARES, seed)
    assert set(parts) == set(SHARES)
    assert all(len(set(parts[groups == g])) == 1 for g in set(groups))


def test_every_part_gets_its_share_of_every_stratum(prompts: tuple[np.ndarray, list[str]]) -> None:
    groups, strata = prompts
    parts = group_split(groups, strata, SHARES, 0)
    for stratum in set(strata):
        inside = np.array(strata) == stratum
        counts = Counter(parts[inside])
        for name, share in SHARES.items():
            assert counts[name] == pytest.approx(share * inside.sum(), abs=6)  # within one largest group


def test_a_stratum_of_few_groups_reaches_every_part_and_shares_need_not_sum_to_one() -> None:
    for n in range(4, 12):
        assert set(group_split(np.arange(n), ["rare"] * n, SHARES, seed=n)) == set(SHARES)
    parts = group_split(np.arange(100), ["a"] * 100, {"train": 3, "test": 1}, 0)
    assert Counter(parts) == {"train": 75, "test": 25}


def test_the_seed_decides(prompts: tuple[np.ndarray, list[str]]) -> None:
    groups, strata = prompts
    first, again, other = (group_split(groups, strata, SHARES, seed) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
