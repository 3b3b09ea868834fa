"""Bag-of-words and length baselines."""

from __future__ import annotations

import numpy as np
import pytest

from probes.grid.baselines import bag_of_words_auroc, length_auroc


@pytest.fixture
def parts() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(0, 60), np.arange(60, 100)


@pytest.mark.parametrize(
    ("text", "auroc"),
    [
        (lambda i, harmful: f"how do i {'Kill' if i % 4 == 0 else 'kill'} it" if harmful else "how do i fix it", 1.0),
        (lambda i, harmful: "burn my boss near the files" if harmful else "burn the files near my boss", 0.5),
        (lambda i, harmful: "plain words" if i < 60 else "red" if harmful else "blue", 0.5),
    ],
    ids=["a word in any case", "word order is invisible", "words are learned from training rows only"],
)
def test_words_and_not_their_order_are_learned_from_training_rows(text, auroc, parts) -> None:
    y = np.arange(100) % 2 == 0
    assert bag_of_words_auroc([text(i, harmful) for i, harmful in enumerate(y)], y, *parts) == auroc


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
