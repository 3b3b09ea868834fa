"""What a probe must beat: a bag of words and the prompt's length, on the same split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler


def bag_of_words_auroc(texts: Sequence[str], y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Return the test AUROC of a logistic regression on word counts."""
    return float(roc_auc_score(y[test], word_scores(texts, y, train, test)))


def word_scores(texts: Sequence[str], y: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the scores that a logistic regression on word counts gives the test texts, (n_test,)."""
    model = make_pipeline(CountVectorizer(token_pattern=r"\w+"), LogisticRegression(max_iter=5000))
    return _scores(model, np.array(texts, dtype=object), y, train, test)


def length_auroc(texts: Sequence[str], y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Return the test AUROC of a logistic regression on the number of characters."""
    model = make_pipeline(FunctionTransformer(), StandardScaler(), LogisticRegression())
    lengths = np.array([[len(text)] for text in texts], dtype=float)
    return float(roc_auc_score(y[test], _scores(model, lengths, y, train, test)))


def _scores(model: Any, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    model.fit(X[train], y[train])
    return np.asarray(model.decision_function(X[test]))
