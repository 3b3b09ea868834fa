"""Agreement of two annotators: Cohen's kappa against scikit-learn, weights, groups, and both ends."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from probes.statistics.agreement import agreement


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.choice(["answer", "refuse", "abstain"], n, p=[0.6, 0.3, 0.1])
    return a, np.where(rng.random(n) < 0.8, a, rng.choice(["answer", "refuse", "clarify"], n))


def test_kappa_is_that_of_scikit_learn_also_with_weights() -> None:
    a, b = drawn(150)
    ones, weights = np.ones(150), np.random.default_rng(1).uniform(1, 9, 150)
    for weight in (ones, weights):
        raw, kappa = agreement(a, b, np.arange(150), weight)
        assert kappa.estimate == pytest.approx(cohen_kappa_score(a, b, sample_weight=weight))
        assert raw.estimate == pytest.approx(np.average(a == b, weights=weight))
        assert kappa.low < kappa.estimate < kappa.high


def test_unequal_weights_and_groups_widen_the_interval() -> None:
    a, b = drawn(200)
    alone, _ = agreement(a, b, np.arange(200), np.ones(200))
    grouped, _ = agreement(a, b, np.arange(200) // 4, np.ones(200))
    assert grouped.high - grouped.low > 1.5 * (alone.high - alone.low)


def test_full_agreement_has_a_width_and_one_label_for_all_has_no_kappa() -> None:
    a, _ = drawn(50)
    raw, kappa = agreement(a, a, np.arange(50), np.ones(50))
    assert raw.estimate == kappa.estimate == pytest.approx(1.0)
    assert kappa.low < 0.95
    same = np.repeat("answer", 50)
    raw, kappa = agreement(same, same, np.arange(50), np.ones(50))
    assert raw.low < raw.estimate == 1.0
    assert np.isnan(kappa.estimate)
    nothing = np.array([], dtype=str)
    assert np.isnan(agreement(nothing, nothing, nothing, np.array([]))[0].estimate)


def test_labels_by_chance_have_a_kappa_around_zero() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        a, b = rng.choice(["answer", "refuse"], (2, 100), p=[0.7, 0.3])
        _, kappa = agreement(a, b, np.arange(100), np.ones(100))
        covered.append(kappa.low <= 0 <= kappa.high)
    assert np.mean(covered) >= 0.93
