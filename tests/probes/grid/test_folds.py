"""Folds have whole groups at both levels, and every sample is tested once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from extract.prompts.groups import linked_groups
from probes.contrast import Contrast
from probes.grid.probe_grid import Fold, cross_validation, held_out

PARTS = np.array(["train", "validation", "test"], dtype=object)


def _contrast(y: np.ndarray, groups: np.ndarray, part: np.ndarray | None = None) -> Contrast:
    part = np.full(len(y), "train", dtype=object) if part is None else part
    return Contrast("normative", np.arange(len(y)) * 3 + 1, np.asarray(y, dtype=bool), groups, part)


@st.composite
def grouped(draw: st.DrawFn) -> Contrast:
    """Draw single prompts, minimal pairs, templates of one label, and entities that link pairs into larger groups."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pair, template, entity, y = [], [], [], []
    for i in range(draw(st.integers(8, 40))):
        kind = draw(st.sampled_from(["single", "pair", "template", "linked pair"]))
        size = {"single": 1, "pair": 2, "linked pair": 2, "template": int(rng.integers(2, 7))}[kind]
        pair += [f"pair{i}" if "pair" in kind else None] * size
        template += [f"template{i}" if kind == "template" else None] * size
        entity += [f"entity{rng.integers(0, 12)}" if kind == "linked pair" else None] * size
        y += [True, False] if "pair" in kind else [bool(rng.integers(0, 2))] * size
    order = rng.permutation(len(y))
    groups = linked_groups(*([column[k] for k in order] for column in (pair, template, entity)))
    return _contrast(np.array(y)[order], groups, PARTS[rng.choice(3, groups.max() + 1)][groups])


def _folds(contrast: Contrast, n: int, seed: int) -> tuple[Fold, ...]:
    try:
        return cross_validation(contrast, n_folds=n, n_inner=2, seed=seed)
    except ValueError:
        assume(False)
        raise


@settings(max_examples=40, deadline=None)
@given(contrast=grouped(), n=st.integers(2, 5), seed=st.integers(0, 9))
def test_no_group_is_on_two_sides_of_any_fold(contrast: Contrast, n: int, seed: int) -> None:
    folds = _folds(contrast, n, seed)
    assert len(folds) == n
    tested = np.concatenate([fold.test for fold in folds])
    assert sorted(tested) == list(range(len(contrast.rows)))  # each sample once
    for fold in folds:
        assert fold.validation is None
        assert sorted([*fold.train, *fold.test]) == sorted(tested)
        assert sorted(np.concatenate([b for _, b in fold.inner])) == sorted(fold.train)
        for a, b in ((fold.train, fold.test), *fold.inner):
            assert not set(contrast.groups[a]) & set(contrast.groups[b])
            assert all(set(contrast.y[side]) == {True, False} for side in (a, b))
        for a, b in fold.inner:
            assert sorted([*a, *b]) == sorted(fold.train)


@settings(max_examples=40, deadline=None)
@given(contrast=grouped(), seed=st.integers(0, 9))
def test_parts_make_one_fold_whose_inner_folds_stay_within_train(contrast: Contrast, seed: int) -> None:
    try:
        (fold,) = held_out(contrast, n_inner=2, seed=seed)
    except ValueError:
        assume(False)
        raise
    assert fold.validation is not None
    for rows, name in zip((fold.train, fold.validation, fold.test), PARTS, strict=True):
        assert np.array_equal(rows, np.flatnonzero(contrast.part == name))
    assert sorted(np.concatenate([b for _, b in fold.inner])) == sorted(fold.train)
    for a, b in fold.inner:
        assert not set(contrast.groups[a]) & set(contrast.groups[b])
        assert sorted([*a, *b]) == sorted(fold.train)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n", [3, 5])
def test_as_many_groups_of_each_class_as_folds_are_enough(n: int, seed: int) -> None:
    """Of pairs, or of single prompts with few of one class: no luck of the shuffle may leave a fold without a class."""
    pairs = _contrast(np.tile([True, False], n), np.repeat(np.arange(n), 2))
    single = _contrast(np.arange(60) < n, np.arange(60))
    for contrast in (pairs, single):
        assert len(cross_validation(contrast, n, 2, seed)) == n


def test_classes_are_balanced_as_far_as_groups_allow() -> None:
    rng = np.random.default_rng(0)
    y, groups = rng.permutation(np.arange(200) < 40), np.arange(200)
    for fold in cross_validation(_contrast(y, groups)):
        assert (y[fold.test].sum(), len(fold.test)) == (8, 40)
        assert [int(y[b].sum()) for _, b in fold.inner] in ([10, 11, 11], [11, 10, 11], [11, 11, 10])


def test_the_seed_decides_and_the_order_of_rows_is_no_luck() -> None:
    y, groups = np.repeat([True, False], 30), np.arange(60)
    one, again, other = (cross_validation(_contrast(y, groups), seed=s) for s in (0, 0, 1))
    assert all(np.array_equal(a.test, b.test) for a, b in zip(one, again, strict=True))
    assert any(not np.array_equal(a.test, b.test) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(one[0].test[:6], np.arange(6))  # shuffled: neighbours in a file are often alike


@pytest.mark.parametrize(
    ("n_positive", "n_negative", "found"), [(2, 40, "2 positive groups"), (40, 1, "1 negative group")]
)
def test_too_few_groups_of_a_class_are_named(n_positive: int, n_negative: int, found: str) -> None:
    y = np.repeat([True, False], [4 * n_positive, 4 * n_negative])
    groups = np.arange(len(y)) // 4
    with pytest.raises(ValueError, match=f"'normative' has {found}, too few for 5 folds; use fewer folds or more"):
        cross_validation(_contrast(y, groups))


def test_too_few_groups_for_inner_folds_are_named() -> None:
    y, groups = np.repeat([True, False], [3, 30]), np.arange(33)
    with pytest.raises(ValueError, match=r"has 2 positive groups, too few for 3 inner folds of 22 samples"):
        cross_validation(_contrast(y, groups), n_folds=3)
    part = np.resize(PARTS, 33)
    with pytest.raises(ValueError, match=r"has 1 positive group, too few for 2 inner folds of its train part"):
        held_out(_contrast(y, groups, part))


def test_groups_that_do_not_divide_are_an_error() -> None:
    """Three groups have a positive sample and three a negative one, but the single ones come to lie apart."""
    y, groups = np.array([True, False, True, False, True, False]), np.array([0, 0, 1, 1, 2, 3])
    message = "the groups of contrast 'normative' do not divide into 3 folds with both classes in each; use fewer"
    with pytest.raises(ValueError, match=message):
        cross_validation(_contrast(y, groups), 3, 2)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_without_a_class_is_named(name: str) -> None:
    part = np.resize(PARTS, 60)
    y = (np.arange(60) % 2 == 0) & (part != name)
    with pytest.raises(ValueError, match=f"'normative' needs both classes in its {name} part; got 0 positive of 20"):
        held_out(_contrast(y, np.arange(60), part))


def test_a_group_in_two_parts_is_refused() -> None:
    part, groups = np.resize(PARTS, 60), np.arange(60)
    y = np.arange(60) % 2 == 0
    held_out(_contrast(y, groups, part))
    groups[7] = groups[30]  # of validation and of train
    with pytest.raises(ValueError, match="group 30 of contrast 'normative' is in its train and validation parts"):
        held_out(_contrast(y, groups, part))
