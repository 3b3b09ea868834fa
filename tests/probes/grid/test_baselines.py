"""Bag-of-words and length baselines."""

from __future__ import annotations

import numpy as np
import pytest

from probes.grid.baselines import bag_of_words_auroc, length_auroc


@pytest.fixture
def parts() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(0, 60), np.arange(60, 100)


def test_a_predictive_word_is_found_in_any_case(parts: tuple[np.ndarray, np.ndarray]) -> None:
    y = np.arange(100) % 2 == 0
    texts = [f"how do i {'Kill' if i % 4 == 0 else 'kill'} it" if harmful else "how do i fix it"
             for i, harmful in enumerate(y)]  # fmt: skip
    assert bag_of_words_auroc(texts, y, *parts) == 1.0


def test_word_order_is_invisible_to_it(parts: tuple[np.ndarray, np.ndarray]) -> None:
    y = np.arange(100) % 2 == 0
    texts = ["burn my boss near the files" if harmful else "burn the files near my boss" for harmful in y]
    assert bag_of_words_auroc(texts, y, *parts) == 0.5


def test_words_learned_from_training_rows_only(parts: tuple[np.ndarray, np.ndarray]) -> None:
    y = np.arange(100) % 2 == 0
    texts = ["plain words" if i < 60 else ("red" if harmful else "blue") for i, harmful in enumerate(y)]
    assert bag_of_words_auroc(texts, y, *parts) == 0.5


def test_length_predicts_only_if_lengths_differ(parts: tuple[np.ndarray, np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2 == 0
    longer = ["x" * int(50 + 30 * harmful + rng.integers(-5, 5)) for harmful in y]
    assert length_auroc(longer, y, *parts) == 1.0
    assert length_auroc(["x" * 40] * 100, y, *parts) == 0.5


def test_shuffled_labels_tell_nothing(parts: tuple[np.ndarray, np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    words = np.array(["kill", "fix", "open", "burn", "hide"])
    texts = [" ".join(rng.choice(words, 4)) for _ in range(100)]
    aurocs = [bag_of_words_auroc(texts, rng.permutation(np.arange(100) % 2 == 0), *parts) for _ in range(20)]
    assert np.mean(aurocs) == pytest.approx(0.5, abs=0.06)
