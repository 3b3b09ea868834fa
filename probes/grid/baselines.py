"""Text baselines for a probe on the same split: bag of words, and prompt length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Integer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from probes.statistics.metrics import auroc

Rows = Integer[np.ndarray, "_"]  # indices of samples


def bag_of_words_auroc(texts: Sequence[str], y: Bool[np.ndarray, " samples"], train: Rows, test: Rows) -> float:
    """Return the test AUROC of a logistic regression on word counts."""
    return auroc(y[test], word_scores(texts, y, train, test))


def word_scores(
    texts: Sequence[str], y: Bool[np.ndarray, " samples"], train: Rows, test: Rows
) -> Float[np.ndarray, " test"]:
    """Return the scores that a logistic regression on word counts gives the test texts."""
    X = np.array(texts, dtype=object)
    model = make_pipeline(CountVectorizer(token_pattern=r"\w+"), LogisticRegression(max_iter=5000))
    return np.asarray(model.fit(X[train], y[train]).decision_function(X[test]))


def length_auroc(texts: Sequence[str], y: Bool[np.ndarray, " samples"], train: Rows, test: Rows) -> float:
    """Return the test AUROC of a logistic regression on the number of characters."""
    model = make_pipeline(FunctionTransformer(), StandardScaler(), LogisticRegression())
    lengths = np.array([[len(text)] for text in texts], dtype=float)
    return auroc(y[test], model.fit(lengths[train], y[train]).decision_function(lengths[test]))
