"""Token pooling: one decisive token is found where the mean drowns it; batch and estimator agree; conventions."""

from typing import Any, get_args

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

from probes.estimators.probes import LogisticProbe
from probes.estimators.token_pooling import Pooling, TokenPoolingProbe, fit_pooled_batch

D = 8
POOLINGS = get_args(Pooling)
each = pytest.mark.parametrize("pooling", POOLINGS)


def draw(n: int, seed: int, strength: float = 8.0) -> tuple[list[np.ndarray], np.ndarray]:
    """Return prompts of 20 to 40 tokens, of which one of a positive prompt is moved; far from the origin."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2 == 0
    X = [rng.normal(size=(rng.integers(20, 41), D)).astype(np.float32) for _ in y]
    for tokens, positive in zip(X, y, strict=True):
        tokens[rng.integers(len(tokens)), 2] += strength * positive
        tokens += 5.0
    return X, y


@each
def test_one_decisive_token_is_found_where_the_mean_drowns_it(pooling: Pooling) -> None:
    (X, y), (fresh, truth) = draw(200, 1), draw(200, 2)
    probe = TokenPoolingProbe(pooling).fit(X, y)
    assert roc_auc_score(truth, probe.decision_function(fresh)) > 0.97
    assert (probe.predict(fresh) == truth).mean() > 0.9
    means, fresh_means = (np.array([tokens.mean(axis=0) for tokens in some]) for some in (X, fresh))
    assert roc_auc_score(truth, LogisticProbe().fit(means, y).decision_function(fresh_means)) < 0.9
    shuffled = TokenPoolingProbe(pooling).fit(X, np.random.default_rng(0).permutation(y))
    assert 0.2 < roc_auc_score(truth, shuffled.decision_function(fresh)) < 0.8


@each
def test_each_fit_of_a_batch_is_the_estimators_own(pooling: Pooling) -> None:
    X, y = draw(60, 1)
    train = np.random.default_rng(0).random((2, 60)) < 0.6
    weights = np.random.default_rng(1).random(60) + 0.5
    *_, scores = fit_pooled_batch(X, train, y, (1e-3, 1e-1), pooling, sample_weight=weights)
    assert scores.shape == (2, 2, 60)
    for s, p in np.ndindex(2, 2):
        rows = np.flatnonzero(train[s])
        alone = TokenPoolingProbe(pooling, penalty=(1e-3, 1e-1)[p])
        alone.fit([X[row] for row in rows], y[rows], weights[rows])
        assert alone.decision_function(X) == pytest.approx(scores[s, p], abs=1e-3)


@each
def test_it_follows_the_conventions(pooling: Pooling) -> None:
    X, y = draw(40, 1)
    probe = TokenPoolingProbe(pooling, penalty=0.1, seed=3)
    assert clone(probe).get_params() == probe.get_params() == {
        "pooling": pooling, "penalty": 0.1, "seed": 3,
    }  # fmt: skip
    with pytest.raises(NotFittedError):
        probe.decision_function(X)
    named = np.where(y, "harmful", "benign")
    assert probe.fit(X, named) is probe
    assert probe.classes_.tolist() == ["benign", "harmful"]
    assert probe.n_features_in_ == D
    assert set(probe.predict(X)) <= {"benign", "harmful"}
    again = clone(probe).fit(X, y).decision_function(X)
    assert np.array_equal(again, probe.decision_function(X))


def test_padding_and_the_order_of_tokens_do_not_matter() -> None:
    X, y = draw(40, 1)
    turned: Any = [tokens[::-1] for tokens in X]
    for pooling in POOLINGS:
        probe = TokenPoolingProbe(pooling).fit(X, y)
        assert probe.decision_function(turned) == pytest.approx(probe.decision_function(X), abs=1e-4)


def test_what_cannot_be_fitted_is_named() -> None:
    X, y = draw(10, 1)
    with pytest.raises(ValueError, match="needs two classes, got"):
        TokenPoolingProbe().fit(X, np.ones(10))
    with pytest.raises(ValueError, match="every sample needs a token"):
        TokenPoolingProbe().fit([*X[:9], X[0][:0]], y)
    with pytest.raises(ValueError, match="must be finite"):
        TokenPoolingProbe().fit([*X[:9], X[0] * np.inf], y)
    with pytest.raises(ValueError, match="two classes in every training set"):
        fit_pooled_batch(X, y[None], y, [0.1], "max")
