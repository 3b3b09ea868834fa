"""Every estimator passes scikit-learn's checks, accepts any two labels, and reports invalid input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from probes.direction import Direction, Locus
from probes.estimators import CentroidCosine, DifferenceInMeans, Inlp, LeaceEraser, LogisticProbe, MassMean
from probes.estimators.probes import BinaryProbe
from tests.support.covering import rest_slow

LOCUS = Locus("resid_post", 3, "post_last")
PROBES = [DifferenceInMeans(), MassMean(), MassMean("oas"), MassMean(0.3), LogisticProbe(), CentroidCosine()]
ALL = [*PROBES, LeaceEraser(), Inlp()]
NAMES = [repr(estimator) for estimator in ALL]
each = pytest.mark.parametrize("estimator", ALL, ids=NAMES)
each_probe = pytest.mark.parametrize("estimator", PROBES, ids=NAMES[: len(PROBES)])


def _expected_to_fail(estimator: BaseEstimator) -> dict[str, str]:
    if isinstance(estimator, CentroidCosine):
        return {"check_classifier_data_not_an_array": "its class means, (1, 1) and (4/3, 4/3), point the same way"}
    return {}


def _own_checks() -> pytest.MarkDecorator:
    """Take scikit-learn's checks: each on one estimator that has it, the rest slow."""
    estimators = [*ALL, LogisticProbe(class_weight=None), LeaceEraser(shrinkage=False)]
    every = parametrize_with_checks(estimators, expected_failed_checks=_expected_to_fail)
    names, cases = every.args
    pairs = [getattr(case, "values", case) for case in cases]
    keys = [(repr(estimator), check.func.__name__, str(check.keywords)) for estimator, check in pairs]
    return pytest.mark.parametrize(names, rest_slow(cases, keys), **every.kwargs)


@_own_checks()
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@each
@pytest.mark.parametrize("labels", [("benign", "harmful"), (0, 1), (-1, 1), (0.0, 1.0), (np.str_("a"), np.str_("b"))])
def test_any_two_labels_mean_the_same_and_scores_are_positive_for_the_greater(estimator, labels, plant) -> None:
    X, y = plant(12, gap=4.0).draw(80, seed=1)
    plain, named = clone(estimator).fit(X, y), clone(estimator).fit(X, np.array(labels)[y.astype(int)])
    assert named.classes_.tolist() == list(labels)
    assert plain.classes_.tolist() == [False, True]
    before, after = plain.direction("r", LOCUS), named.direction("r", LOCUS, positive=labels[1])
    assert np.array_equal(before.vector, after.vector)
    assert after.provenance["positive_class"] == labels[1]
    if isinstance(estimator, BinaryProbe):
        assert np.array_equal(plain.decision_function(X), named.decision_function(X))
        assert set(named.predict(X)) == set(labels)


@each
def test_a_direction_points_to_the_class_that_is_named_not_to_the_last_of_the_alphabet(estimator, plant) -> None:
    X, declined = plant(12, gap=4.0).draw(80, seed=1)
    fitted = clone(estimator).fit(X, np.where(declined, "abstain", "answer"))
    with pytest.raises(ValueError, match=r"name the direction's positive class, positive='abstain' or .*; none was"):
        fitted.direction("r", LOCUS)
    with pytest.raises(ValueError, match="got 'refuse'"):
        fitted.direction("r", LOCUS, positive="refuse")
    right, wrong = (fitted.direction("r", LOCUS, positive=label) for label in ("abstain", "answer"))
    assert np.array_equal(right.vector, -wrong.vector)
    assert (right.mean_positive, right.mean_negative) == pytest.approx((-wrong.mean_negative, -wrong.mean_positive))
    assert right.project(X)[declined].mean() == pytest.approx(right.mean_positive, abs=1e-5)
    assert right.mean_positive > right.mean_negative
    assert (right.provenance["positive_class"], wrong.provenance["positive_class"]) == ("abstain", "answer")
    assert right.provenance["n_positive"] == declined.sum()


@each_probe
def test_a_planted_difference_is_read_in_new_samples_and_shuffled_labels_are_not(estimator: Any, plant: Any) -> None:
    planted = plant(20, gap=4.0)
    X, y = planted.draw(200, seed=1)
    fresh, truth = planted.draw(400, seed=2)
    fitted = clone(estimator).fit(X, y)
    assert roc_auc_score(truth, fitted.decision_function(fresh)) > 0.95
    assert (fitted.predict(fresh) == truth).mean() > 0.9
    assert np.array_equal(fitted.predict(fresh), fitted.decision_function(fresh) > 0)
    rng = np.random.default_rng(3)
    shuffled = [clone(estimator).fit(X, rng.permutation(y)).decision_function(fresh) for _ in range(15)]
    assert abs(np.mean([roc_auc_score(truth, score) for score in shuffled]) - 0.5) < 0.25
    inverted = clone(estimator).fit(X, ~y).decision_function(fresh)
    assert inverted == pytest.approx(-fitted.decision_function(fresh), abs=1e-6)


@pytest.mark.parametrize("estimator", [e for e in ALL if not isinstance(e, CentroidCosine)], ids=lambda e: repr(e))
def test_float32_under_a_large_common_offset_is_centred_in_float64(estimator: Any, plant: Any) -> None:
    """Multiples of 1/16 stay exact in float32 at an offset of 2^16, so nothing may change."""
    X, y = plant(10, gap=3.0).draw(100, seed=1)
    X = (np.round(X * 16) / 16).astype(np.float32)
    moved = X + np.float32(2**16)
    assert np.array_equal(moved.astype(np.float64) - 2**16, X)  # nothing lost before we begin
    plain, offset = clone(estimator).fit(X, y), clone(estimator).fit(moved, y)
    np.testing.assert_allclose(offset.direction("r", LOCUS).vector, plain.direction("r", LOCUS).vector, atol=1e-6)
    if isinstance(estimator, BinaryProbe):
        np.testing.assert_allclose(offset.decision_function(moved), plain.decision_function(X), atol=1e-6)


@each
def test_a_direction_has_unit_norm_the_training_means_and_its_provenance(estimator: Any, plant: Any) -> None:
    X, y = plant(16, gap=4.0, offset=2.0).draw(101, seed=1, share=0.3)
    fitted = clone(estimator).fit(X, y)
    direction = fitted.direction("normative_read", LOCUS, {"model": "two-knobs"})
    assert isinstance(direction, Direction)
    assert np.linalg.norm(direction.vector.astype(np.float64)) == pytest.approx(1, abs=1e-6)
    along = direction.project(X)
    assert direction.mean_positive == pytest.approx(along[y].mean(), abs=1e-9)
    assert direction.mean_negative == pytest.approx(along[~y].mean(), abs=1e-9)
    assert direction.mean_positive > direction.mean_negative
    record = json.loads(json.dumps(direction.provenance))
    assert (record["estimator"], record["parameters"]) == (type(estimator).__name__, estimator.get_params())
    assert (record["n_positive"], record["n_negative"], record["positive_class"]) == (30, 71, True)
    assert record["model"] == "two-knobs"
    if hasattr(fitted, "shrinkage_"):
        assert record["shrinkage"] == fitted.shrinkage_


@each
def test_nothing_is_given_before_it_is_fitted(estimator: Any) -> None:
    with pytest.raises(NotFittedError):
        clone(estimator).direction("r", LOCUS)


@each
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["harmful"] * 6, r"needs two classes, got one class only: 'harmful' \(6 samples\)$"),
        ([True] * 6, r"one class only: True \(6 samples\)$"),
        (
            ["a", "b", "b", "c", "c", "c"],
            r"Only binary classification is supported.*'a' \(1 sample\), 'b' \(2 samples\), ",
        ),
    ],
)
def test_not_two_classes_is_one_plain_line(estimator: Any, y: list, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        clone(estimator).fit(np.random.default_rng(0).standard_normal((6, 4)), y)
    assert "\n" not in str(error.value)


@each
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_named_in_fit_and_after(estimator: Any, bad: float, plant: Any) -> None:
    X, y = plant(5, gap=4.0).draw(40, seed=1)
    fitted = clone(estimator).fit(X, y)
    spoiled = X.copy()
    spoiled[[3, 17], 2] = bad
    with pytest.raises(ValueError, match=r"X has NaN or inf in 2 of 40 rows, at index 3, 17$"):
        clone(estimator).fit(spoiled, y)
    with pytest.raises(ValueError, match=r"in 2 of 40 rows, at index 3, 17$"):
        (fitted.predict if hasattr(fitted, "predict") else fitted.transform)(spoiled)
    spoiled[:] = bad
    with pytest.raises(ValueError, match=r"in 40 of 40 rows, at index 0, 1, 2, 3, 4, …$"):
        clone(estimator).fit(spoiled, y)


@each
@pytest.mark.parametrize("offset", [0.0, 0.1, 1e6 / 3])
def test_constant_samples_and_equal_means_are_errors(estimator: Any, offset: float) -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((30, 4))
    y = np.arange(60) < 30
    with pytest.raises(ValueError, match="needs samples that differ; all 60 rows of X are the same"):
        clone(estimator).fit(np.full((60, 4), offset), y)
    same = np.concatenate([half, rng.permutation(half)]) + offset
    with pytest.raises(ValueError, match=r"in their mean; False \(30 samples\) and True \(30 samples\) have the same"):
        clone(estimator).fit(same, y)
    clone(estimator).fit(same + 1e-6 * np.outer(y, np.arange(1, 5)) + 1, y)  # the control: a small difference is one
