"""The batched solver compared with scikit-learn, one fit at a time, on difficult activations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probes.grid import design, newton
from probes.grid.solver import Fits, fit_logistic_batch
from probes.statistics.metrics import aurocs

CS = (1e-4, 1e-1, 10.0, 1e3)
EXACT = {"tol": 1e-10, "max_iter": 100_000, "solver": "newton-cholesky"}  # which reaches its tolerance
TOL = 2e-4  # of scores, relative to the largest; the solver's tol bounds the weights


def _labels(rng: np.random.Generator, n: int, share: float = 0.5) -> np.ndarray:
    y = rng.random(n) < share
    y[:8] = np.arange(8) < 4
    return rng.permutation(y)


def _folds(rng: np.random.Generator, n: int, k: int = 3) -> np.ndarray:
    return rng.permutation(n) % k != np.arange(k)[:, None]


def _plain(n: int, d: int, share: float = 0.5, gap: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = _labels(rng, n, share)
    return rng.standard_normal((n, d)) + gap * y[:, None] * (np.arange(d) < 3), y


def _reference(X: np.ndarray, train: np.ndarray, y: np.ndarray, C: float, class_weight: str | None) -> np.ndarray:
    logistic = LogisticRegression(C=C, class_weight=class_weight, **EXACT)
    X = X.astype(np.float64)
    return make_pipeline(StandardScaler(), logistic).fit(X[train], y[train]).decision_function(X)


def _off(a: np.ndarray, b: np.ndarray) -> float:
    return float((np.abs(a - b).max(axis=-1) / np.abs(b).max(axis=-1)).max())


def _standardised(fits: Fits, X: np.ndarray, train: np.ndarray) -> np.ndarray:
    return fits.weight * np.stack([X[rows].std(axis=0) for rows in train])[:, None]


def _copies() -> tuple[np.ndarray, np.ndarray]:
    X, y = _plain(40, 60)
    return np.repeat(X, 3, axis=0), np.repeat(y, 3)


def _rank_three(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = _plain(n, 3)
    return X @ np.random.default_rng(1).standard_normal((3, d)), y


def _few_rows_vary(X: np.ndarray, _rng: np.random.Generator) -> np.ndarray:
    """Half the features owe their variance to six samples, so that folds' standard deviations are far apart."""
    return X * np.where(np.arange(X.shape[1]) % 2, 1, np.where(np.arange(len(X)) < 6, 10, 1e-3)[:, None])


CHANGES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {  # of random activations
    "random": lambda X, _: X,
    "badly scaled": lambda X, rng: X * rng.permutation(np.geomspace(1e-8, 1e8, X.shape[1])),
    "a massive dimension": lambda X, _: np.where(np.arange(X.shape[1]) == 7, 1e4 + 300 * X, X),
    "float32 with an offset": lambda X, _: (X + 1e4).astype(np.float32),
    # a covariance of condition 1e16
    "decaying spectrum": lambda X, rng: (
        (X * np.geomspace(1, 1e-8, X.shape[1])) @ np.linalg.qr(rng.standard_normal((X.shape[1],) * 2))[0]
    ),
    # features of a few non-zero samples: constant in one fold and not in another
    "sparse": lambda X, rng: X * (rng.random(X.shape) < 3 / len(X)),
    "few rows vary": _few_rows_vary,
    "an outlier": lambda X, _: X * np.where(np.arange(len(X)) == 5, 1e6, 1)[:, None],
    "heavy-tailed": lambda X, _: X**9,
    "dependent columns": lambda X, rng: np.hstack([X, X, X[:, :5] @ rng.standard_normal((5, 40))]),
    "float16": lambda X, _: (30 * X + 50).astype(np.float16),
}
SHAPES = {"dependent columns": (120, 20), "float16": (100, 120)}  # of those that are of one size


def _changed(change: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = _plain(n, d)
    return CHANGES[change](X, np.random.default_rng(1)), y


def _nearly_constant() -> tuple[np.ndarray, np.ndarray]:
    """A constant, and rounding errors about a large number, which the scaler takes for one."""
    X, y = _plain(120, 40)
    X[:, 0] = 1e8 + np.spacing(1e8) * np.random.default_rng(1).integers(-1, 2, 120)
    X[:, 1] = 1 / 3
    return X, y


def _few_components() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = _labels(rng, 160)
    X = (rng.standard_normal((160, 10)) * np.geomspace(30, 1, 10)) @ rng.standard_normal((10, 200))
    return X + 0.3 * rng.standard_normal(X.shape) + 0.3 * rng.standard_normal(200) * y[:, None], y


WIDE, TALL = (90, 150), (300, 40)  # through the Gram matrix of samples, and through the features
CASES: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    **{change: partial(_changed, change, *shape) for change, shape in SHAPES.items()},
    "copies of rows": _copies,
    "nearly constant": _nearly_constant,
    "few components": _few_components,
} | {
    f"{name}, {kind}": lambda make=make, shape=shape: make(*shape)
    for kind, shape in {"wide": WIDE, "tall": TALL}.items()
    for name, make in {
        "separable": lambda n, d: _plain(n, d, gap=12.0),
        "5 in 95": lambda n, d: _plain(n, d, share=0.01),
        "rank three": _rank_three,
        **{change: partial(_changed, change) for change in CHANGES if change not in SHAPES},
    }.items()
}


@pytest.mark.parametrize(
    ("name", "rank"),
    [*((name, design.RANK) for name in CASES),
     *(pytest.param(name, 4, marks=pytest.mark.slow) for name in CASES if "tall" in name)],
)  # fmt: skip
def test_it_is_a_scaler_and_a_logistic_regression_of_each_fold(name, rank, monkeypatch) -> None:
    monkeypatch.setattr(design, "RANK", rank)  # of the preconditioner: it costs steps, and no accuracy
    X, y = CASES[name]()
    untouched = X.copy()
    train = _folds(np.random.default_rng(2), len(X))
    fits = fit_logistic_batch(X, train, np.tile(y, (len(train), 1)), CS)
    expected = np.array([[_reference(X, rows, y, C, "balanced") for C in CS] for rows in train])
    assert _off(fits.scores, expected) < TOL
    assert (fits.error <= 3e-5).all()
    for rows, scores, theirs in zip(train, fits.scores, expected, strict=True):
        np.testing.assert_allclose(aurocs(scores[:, ~rows], y[~rows]), aurocs(theirs[:, ~rows], y[~rows]), atol=1e-3)
    raw = np.einsum("nd,scd->scn", X.astype(np.float64), fits.weight) + fits.intercept[..., None]
    assert _off(raw, fits.scores) < 1e-9
    np.testing.assert_array_equal(X, untouched)


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_sets_may_be_of_any_size_with_any_labels_and_samples_of_any_weight(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    X, _ = _plain(*shape)
    train = np.vstack([_folds(rng, len(X)), ~_folds(rng, len(X), 10)[:3]])
    y = np.stack([_labels(rng, len(X), share) for share in (0.5, 0.1, 0.9, 0.5, 0.5, 0.5)])
    train |= np.stack([np.isin(np.arange(len(X)), [row.argmax(), row.argmin()]) for row in y])  # of both classes
    balanced = fit_logistic_batch(X, train, y, CS).scores
    plain = fit_logistic_batch(X, train, y, CS, sample_weight=np.ones(len(X))).scores
    weight = rng.uniform(0.2, 5, len(X))
    weighted = fit_logistic_batch(X, train, y, CS, sample_weight=weight).scores
    for scores, class_weight in ((balanced, "balanced"), (plain, None)):
        theirs = [[_reference(X, t, row, C, class_weight) for C in CS] for t, row in zip(train, y, strict=True)]
        assert _off(scores, np.array(theirs)) < TOL
    for t, row, scores in zip(train, y, weighted[:, 2], strict=True):
        Z = StandardScaler().fit(X[t]).transform(X)
        model = LogisticRegression(C=CS[2], **EXACT)
        assert _off(scores, model.fit(Z[t], row[t], weight[t]).decision_function(Z)) < TOL
    assert _off(balanced, plain) > 10 * TOL  # the controls: weights matter, and labels
    assert _off(weighted, plain) > 10 * TOL
    assert _off(fit_logistic_batch(X, train, y[::-1], CS[:1]).scores, balanced[:, :1]) > 10 * TOL


VALUES = st.sampled_from([0.0, 0.0, 1.0, -1.0, 2.0, 1e-3, 1e3, -1e6, 0.1])


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(4, 16), d=st.integers(1, 24), log_C=st.floats(-4, 4))
def test_small_and_degenerate_samples_too(data: st.DataObject, n: int, d: int, log_C: float) -> None:
    X = np.array(data.draw(st.lists(st.lists(VALUES, min_size=d, max_size=d), min_size=n, max_size=n)))
    y = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=2, max_size=2)))
    train = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=2, max_size=2)))
    train[:, :2], y[:, :2] = True, [True, False]
    fits = fit_logistic_batch(X, train, y, [10**log_C])
    length = np.linalg.norm(_standardised(fits, X, train), axis=-1)
    for rows, labels, ours, bound in zip(train, y, fits.scores[:, 0], length * (fits.error + 1e-8), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # theirs, of 1e-10 in a line search
            theirs = _reference(X, rows, labels, 10**log_C, "balanced")
        far = np.linalg.norm(StandardScaler().fit(X[rows]).transform(X), axis=1)  # of samples left out, 1e9 at worst
        assert (np.abs(ours - theirs) <= 1e-3 * np.abs(theirs[rows]).max() + 2 * bound * far + 1e-7).all()


@pytest.mark.parametrize("shape", [WIDE, TALL])
@pytest.mark.parametrize("change", ["random", "few rows vary"])
def test_order_company_and_units_do_not_matter(change, shape) -> None:
    rng = np.random.default_rng(4)
    X, y = _changed(change, *shape)
    train = _folds(rng, len(X), 4)
    Y = np.stack([_labels(rng, len(X)), y, y, ~y])
    fits = fit_logistic_batch(X, train, Y, CS, tol=1e-8)
    rows, features, sets, Cs = (rng.permutation(n) for n in (*X.shape, len(train), len(CS)))
    some = np.array(CS)[Cs].tolist()
    again = fit_logistic_batch(X[rows][:, features], train[sets][:, rows], Y[sets][:, rows], some, tol=1e-8)
    np.testing.assert_allclose(again.scores, fits.scores[np.ix_(sets, Cs, rows)], rtol=1e-6, atol=1e-6)
    alone = fit_logistic_batch(X, train[2:3], Y[2:3], CS[1:2], tol=1e-8)
    np.testing.assert_allclose(alone.scores[0, 0], fits.scores[2, 1], rtol=1e-6, atol=1e-6)
    units = np.geomspace(1e-3, 1e3, X.shape[1])
    moved = fit_logistic_batch(X * units + 10 * units[::-1], train, Y, CS, tol=1e-8)
    np.testing.assert_allclose(moved.scores, fits.scores, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moved.weight * units, fits.weight, rtol=1e-5, atol=1e-5 * np.abs(fits.weight).max())


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_samples_that_a_set_leaves_out_do_not_touch_its_fit(shape: tuple[int, int]) -> None:
    X, y = _plain(*shape)
    train = _folds(np.random.default_rng(5), len(X))[:1]
    plain = fit_logistic_batch(X, train, y[None], CS, tol=1e-8)
    other, flipped = X.copy(), np.where(train[0], y, ~y)
    other[~train[0]] = 1e4 * np.random.default_rng(6).standard_normal((int((~train).sum()), X.shape[1])) - 1e5
    changed = fit_logistic_batch(other, train, flipped[None], CS, tol=1e-8)
    np.testing.assert_allclose(changed.weight, plain.weight, atol=1e-6 * np.abs(plain.weight).max())
    np.testing.assert_allclose(changed.scores[:, :, train[0]], plain.scores[:, :, train[0]], rtol=1e-5, atol=1e-5)


def test_read_only_strided_and_whole_numbered_input_is_as_good() -> None:
    X, y = _plain(*WIDE)
    X = np.round(4 * X)
    train = _folds(np.random.default_rng(2), len(X))
    plain = fit_logistic_batch(X, train, np.tile(y, (3, 1)), CS).scores
    strided = np.asfortranarray(np.repeat(X, 2, axis=0))[::2].astype(np.int16)
    strided.setflags(write=False)
    np.testing.assert_allclose(fit_logistic_batch(strided, train, np.broadcast_to(y, train.shape), CS).scores, plain)


@pytest.mark.parametrize("name", [name for name in CASES if "decaying" in name or "rank" in name or "random" in name])
def test_the_error_is_a_bound(name: str) -> None:
    X, y = CASES[name]()
    X, train = X.astype(np.float64), _folds(np.random.default_rng(2), len(X))
    Y = np.tile(y, (3, 1))
    exact = _standardised(fit_logistic_batch(X, train, Y, CS, tol=1e-10), X, train)
    for tol in (0.3, 1e-2, 1e-4, 1e-7):
        fits = fit_logistic_batch(X, train, Y, CS, tol=tol)
        w = _standardised(fits, X, train)
        off = np.linalg.norm(w - exact, axis=-1) / np.linalg.norm(w, axis=-1)
        assert (off <= fits.error + 1e-9).all()
        assert (fits.error <= tol).all()
        assert tol < 1e-2 or off.max() > 1e-6  # the control: it does stop early


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_stopping_short_of_the_tolerance_warns(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = _plain(*shape)
    monkeypatch.setattr(newton, "MAX_NEWTON", 2)
    with pytest.warns(ConvergenceWarning, match=r"[12] of 2 logistic fits stopped with a relative error bound of up"):
        fits = fit_logistic_batch(X, np.ones((1, len(X)), dtype=bool), y[None], [1.0, 1e3], tol=1e-9)
    assert fits.error.max() > 1e-9


@pytest.mark.parametrize("shape", [WIDE, TALL])
def test_without_a_class_difference_it_stops_at_rounding(shape: tuple[int, int]) -> None:
    """Each sample is in both classes; a bound relative to weights of zero can never be met."""
    X, _ = _plain(*shape)
    X, y = np.repeat(X, 2, axis=0) / 3, np.arange(2 * len(X)) % 2 == 0
    fits = fit_logistic_batch(X, np.ones((1, len(X)), dtype=bool), y[None], CS)
    assert np.abs(fits.scores).max() < 1e-9


@pytest.mark.filterwarnings("ignore:overflow")
def test_what_overflows_is_never_taken_for_converged() -> None:
    X, y = _plain(*TALL)
    with pytest.warns(ConvergenceWarning, match="1 of 1 logistic fits stopped .* up to nan"):
        fit_logistic_batch(1e200 * X, np.ones((1, len(X)), dtype=bool), y[None], [1.0])


def test_errors_name_what_is_wrong() -> None:
    X, y = _plain(40, 5)
    train, Y = np.ones((3, 40), dtype=bool), np.tile(y, (3, 1))
    train[1] = ~y
    with pytest.raises(ValueError, match=rf"both classes; training set 1 has 0 positive of {(~y).sum()}$"):
        fit_logistic_batch(X, train, Y, [1.0])
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"every C must be positive and finite, got \[1.0, "):
            fit_logistic_batch(X, train[:1], Y[:1], [1.0, bad])
    with pytest.raises(ValueError, match=r"every C must be positive and finite, got \[\]"):
        fit_logistic_batch(X, train[:1], Y[:1], [])
    with pytest.raises(ValueError, match=r"weights must be positive and finite; the smallest is 0\.0"):
        fit_logistic_batch(X, train[:1], Y[:1], [1.0], sample_weight=np.arange(40.0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_sample_that_is_not_finite_is_an_error_even_if_no_set_is_fitted_on_it(value: float) -> None:
    X, y = _plain(40, 5)
    X[[7, 9], 2] = value
    train = np.ones((1, 40), dtype=bool)
    train[0, [7, 9]] = False
    with pytest.raises(ValueError, match=r"outside the training sets; 2 of 40 have NaN or inf, the first at index 7"):
        fit_logistic_batch(X, train, y[None], [1.0])
