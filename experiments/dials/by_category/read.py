"""Fits the probe that recognises a prompt's category at decode time, where nobody says it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Shaped
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.responses.loaded_run import LoadedRun
from experiments.run.corpus import Corpus
from probes.direction import Locus
from steering.dial import CategoryRead, named

CONFIDENT = 0.8  # least probability from which a category counts as recognised
LEAST_TRAINING = 20  # training prompts that a category needs to be recognised
LEAST_GROUPS = 5  # among them
FOLDS = 5
OTHER = ""  # the category of prompts of every smaller one


@dataclass(frozen=True)
class Recognised:
    """A category read, and the category of each prompt of the corpus by it.

    A training prompt is recognised by a probe fitted without its fold, as a prompt that the probe has not seen.
    """

    read: CategoryRead
    names: Shaped[np.ndarray, " prompts"]  # object; "" where none is recognised confidently

    def right(self, corpus: Corpus, among: Bool[np.ndarray, " prompts"]) -> tuple[float, float]:
        """Return the share of some prompts that is recognised, and the share of these whose category is right."""
        true, recognised = categories_of(corpus), self.names
        sure = among & (recognised != OTHER)
        right = float((recognised[sure] == true[sure]).mean()) if sure.any() else float("nan")
        return float(sure.sum() / max(among.sum(), 1)), right


def categories_of(corpus: Corpus) -> Shaped[np.ndarray, " prompts"]:
    """Return the category of each prompt, "" where it has none."""
    return np.array([prompt.category or OTHER for prompt in corpus.prompts], dtype=object)


def fit_category_read(loaded: LoadedRun, locus: Locus) -> Recognised | None:
    """Fit a category read on training prompts; None where fewer than two categories have enough of them."""
    corpus = loaded.corpus
    training, name = np.flatnonzero(corpus.rated & corpus.within("train")), categories_of(corpus)
    large = [one for one in sorted(set(name[training])) if one != OTHER and _is_large(corpus, training, name, one)]
    if len(large) < 2:
        return None
    target = np.where(np.isin(name.astype(str), large), name, OTHER).astype(str)
    X = loaded.store.read(locus.layer, locus.position).astype(np.float64)
    probe = _probe().fit(X[training], target[training])
    probability = probe.predict_proba(X)
    classes = tuple(map(str, probe.classes_))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=loaded.config.seed % 2**32)
    with warnings.catch_warnings():  # of prompts of no category there may be fewer than folds
        warnings.filterwarnings("ignore", message="The least populated class in y has only")
        divided = list(folds.split(training, target[training], corpus.groups[training]))
    for fitted, left_out in divided:
        inner = _probe().fit(X[training[fitted]], target[training[fitted]])
        places = [classes.index(str(one)) for one in inner.classes_]
        rows = training[left_out]
        probability[rows] = 0.0
        probability[np.ix_(rows, places)] = inner.predict_proba(X[rows])
    weight, bias = raw_weights(probe)
    names = np.array([one or OTHER for one in named(classes, probability, CONFIDENT)], dtype=object)
    return Recognised(CategoryRead(classes, locus, weight, bias, CONFIDENT), names)


def _is_large(corpus: Corpus, training: np.ndarray, name: np.ndarray, one: str) -> bool:
    rows = training[name[training] == one]
    return len(rows) >= LEAST_TRAINING and corpus.n_groups(rows) >= LEAST_GROUPS


def _probe() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))


def raw_weights(probe: Pipeline) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and biases of a fitted probe on raw activations; of two classes the first one's are zero."""
    scaler, model = probe[0], probe[-1]
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
        intercept = np.concatenate([[0.0], intercept])
    weight = coefficients / scaler.scale_
    return weight, intercept - weight @ scaler.mean_
