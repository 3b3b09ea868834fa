"""The grid finds a planted locus on validation samples and reports it on test samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from probes.geometry import cosine
from probes.grid import KINDS, Cell, Contrast, choose, probe_grid
from probes.means import unit

N, D, LAYERS, POSITIONS = 240, 8, (0, 1, 2, 3), ("inst_last", "post_last")
DIRECTION = unit(np.random.default_rng(9).standard_normal(D))
PART = np.array(["train", "validation", "test"], dtype=object)[np.random.default_rng(8).choice(3, N, p=[0.5, 0.2, 0.3])]


def _read(y: np.ndarray, strength: dict[tuple[int, str], float]) -> Callable[[int, str], np.ndarray]:
    def read(layer: int, position: str) -> np.ndarray:
        noise = np.random.default_rng([layer, POSITIONS.index(position)]).standard_normal((N, D))
        return (noise + 100 + strength.get((layer, position), 0.0) * y[:, None] * DIRECTION).astype(np.float32)

    return read


def _contrast(y: np.ndarray, part: np.ndarray = PART) -> Contrast:
    return Contrast("normative", np.arange(N), y, np.arange(N), part)


def _cells(read: Callable[[int, str], np.ndarray], contrast: Contrast) -> list[Cell]:
    return list(probe_grid(read, LAYERS, POSITIONS, contrast, lambda: None))


@pytest.fixture
def y() -> np.ndarray:
    return np.random.default_rng(0).random(N) < 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_the_planted_locus_and_direction_are_found(y: np.ndarray, kind: str) -> None:
    chosen = choose(_cells(_read(y, {(2, "post_last"): 4.0, (3, "post_last"): 1.0}), _contrast(y)), kind)
    assert (chosen.layer, chosen.position) == (2, "post_last")
    assert cosine(chosen.means, DIRECTION) > 0.9
    assert chosen.test[kind].auroc.low > 0.85
    assert chosen.test[kind].balanced_accuracy > 0.9  # the threshold lies between the classes, not at zero
    assert chosen.test[kind].n_positive == int(y[PART == "test"].sum())


def test_shuffled_labels_do_not_reach_beyond_chance_on_test() -> None:
    """Chosen as the best of five loci on validation, so validation is above 0.5; test must not be."""
    validation: dict[str, list[float]] = {kind: [] for kind in KINDS}
    covered: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for seed in range(10):
        rng = np.random.default_rng([1, seed])
        y, X = rng.random(N) < 0.4, rng.standard_normal((5, N, 4))
        cells = list(probe_grid(lambda layer, _position, X=X: X[layer], range(5), ["post_last"], _contrast(y), int))
        for kind in KINDS:
            chosen = choose(cells, kind)
            validation[kind].append(chosen.validation[kind])
            covered[kind].append(chosen.test[kind].auroc.low <= 0.5 <= chosen.test[kind].auroc.high)
    for kind in KINDS:
        assert np.mean(validation[kind]) > 0.56  # the control: choosing does inflate the validation figure
        assert np.sum(covered[kind]) >= 9


def test_validation_chooses_and_test_rows_have_no_say(y: np.ndarray) -> None:
    """At layer 1 only the test rows tell the classes apart; at layer 3 all others do."""

    def read(layer: int, position: str) -> np.ndarray:
        X = _read(y, {})(layer, position)
        telling = {1: PART == "test", 3: PART != "test"}.get(layer, np.zeros(N, dtype=bool))
        return X + 5 * (telling & y)[:, None] * DIRECTION

    chosen = choose(_cells(read, _contrast(y)))
    assert chosen.layer == 3
    assert chosen.validation["logistic"] > 0.95
    assert chosen.test["logistic"].auroc.estimate < 0.75


def test_fits_use_training_rows_only(y: np.ndarray) -> None:
    read = _read(y, {(0, "inst_last"): 3.0})

    def spoiled(layer: int, position: str) -> np.ndarray:
        return np.where((PART == "train")[:, None], read(layer, position), 1e3)

    for before, after in zip(_cells(read, _contrast(y)), _cells(spoiled, _contrast(y)), strict=True):
        assert np.array_equal(before.means, after.means)
        assert np.array_equal(before.logistic.weight, after.logistic.weight)


def test_rows_and_parts_left_out_have_no_say(y: np.ndarray) -> None:
    part = np.where(np.arange(N) % 5 == 0, "calibration", PART)
    full, kept = _contrast(y, part), np.flatnonzero(part != "calibration")
    fewer = Contrast("normative", kept, y[kept], kept, part[kept])
    read = _read(y, {(0, "inst_last"): 3.0})
    for a, b in zip(_cells(read, full), _cells(read, fewer), strict=True):
        assert a.validation == b.validation
        assert a.test == b.test


def test_ties_go_to_the_widest_gap_and_then_to_the_earliest_locus(y: np.ndarray) -> None:
    strength = {(1, "inst_last"): 30.0, (2, "inst_last"): 60.0, (3, "post_last"): 30.0}
    cells = _cells(_read(y, strength), _contrast(y))
    assert sum(cell.validation["logistic"] == 1.0 for cell in cells) == 3
    chosen = choose(cells)
    assert (chosen.layer, chosen.position) == (2, "inst_last")
    same = [replace(cell, separation=dict.fromkeys(KINDS, 5.0)) for cell in cells]
    assert (choose(same).layer, choose(same).position) == (1, "inst_last")


def test_progress_is_told_of_every_locus(y: np.ndarray) -> None:
    seen: list[int] = []
    cells = list(probe_grid(_read(y, {}), LAYERS, POSITIONS, _contrast(y), lambda: seen.append(1)))
    assert len(seen) == len(cells) == len(LAYERS) * len(POSITIONS)
    assert [(c.layer, c.position) for c in cells[:3]] == [(0, "inst_last"), (0, "post_last"), (1, "inst_last")]


@pytest.mark.parametrize("name", ["train", "validation", "test"])
def test_a_part_without_a_class_is_named(y: np.ndarray, name: str) -> None:
    one_sided = y & (name != PART)
    with pytest.raises(ValueError, match=f"'normative' needs both classes in its {name} part; got 0 positive of"):
        _cells(_read(y, {}), _contrast(one_sided))
