"""Simulations: intervals cover the truth, and p-values are uniform for labels without information.

A rate is held against its nominal value with three binomial standard errors, about one false alarm in a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from probes.contrast import Contrast
from probes.grid.nulls import NullAUROC, null_auroc
from probes.grid.probe_grid import LOGISTIC, MEANS, ProbeGrid, choose_locus, choose_locus_by_fold, mean_scores
from probes.grid.solver import fit_logistic_batch
from probes.statistics.intervals import Estimate, auroc_interval, effective_number
from probes.statistics.metrics import Discrimination, average, discrimination
from tests.support.covering import matrix
from tests.support.draws import draws

D = 6
KINDS = (MEANS, LOGISTIC)
SETTINGS = ("single rows", "pairs", "one-label groups", "unequal groups", "a dominant component")
PARTS = np.array(["train", "validation", "test", "train", "test"], dtype=object)


def _margin(level: float, n: int) -> float:
    return float(3 * np.sqrt(level * (1 - level) / n))


def _covers(interval: Estimate, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def _labels(setting: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    match setting:
        case "pairs":
            return np.tile([True, False], n // 2), np.repeat(np.arange(n // 2), 2)
        case "one-label groups" | "unequal groups":
            sizes = np.full(n // 3, 4) if setting == "one-label groups" else np.resize([1, 1, 1, 2, 5], n // 2)
            groups = np.repeat(np.arange(len(sizes)), sizes)
            return rng.permutation(np.arange(len(sizes)) % 2 == 0)[groups], groups
        case _:
            return rng.permutation(np.arange(n) % 2 == 0), np.arange(n)


def _covariance(setting: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviations, (D,), of what a group shares and of what is a row's own."""
    one = np.ones(D)
    if setting == "a dominant component":
        return 0 * one, np.where(np.arange(D) == 0, 10, 1)
    return (0 if setting == "single rows" else 2) * one, one


def _stream(setting: str, groups: np.ndarray, rng: np.random.Generator, loci: int = 1) -> np.ndarray:
    """Draw activations, (loci, 1, n, D), that know nothing of any label."""
    shared, own = _covariance(setting)
    between = shared * rng.standard_normal((loci, 1, groups.max() + 1, D))
    return between[:, :, groups] + own * rng.standard_normal((loci, 1, len(groups), D))


def _contrast(setting: str, n: int) -> Contrast:
    y, groups = _labels(setting, n, np.random.default_rng(0))
    return Contrast("planted", np.arange(len(y)), y, groups, PARTS[groups // 2 % 5])


@cache
def _by_chance(setting: str, n: int = 50) -> list[dict[str, tuple[list[Discrimination], Discrimination]]]:
    """Choose one of two loci that know nothing, n times; by kind and way, its test figures and the unnested one."""
    contrast, drawn = _contrast(setting, 80), []
    ways = {"held out": ProbeGrid.held_out, "cross-validated": ProbeGrid.cross_validated}
    grids = {way: make([contrast], n_inner=2, Cs=(1e-2,)) for way, make in ways.items()}
    for seed in range(n):
        X = _stream(setting, contrast.groups, np.random.default_rng([seed, SETTINGS.index(setting)]), loci=2)
        found = {}
        for way, grid in grids.items():
            scored = list(grid.scores_by_locus(X, range(2), ["last"]))
            for kind in KINDS:
                chosen, tested = choose_locus_by_fold(scored, kind)
                by_fold = [locus.scores[kind].by_fold[k] for k, locus in enumerate(chosen)]
                assert tested == average(by_fold)
                found[f"{kind}, {way}"] = by_fold, choose_locus(scored, kind).scores[kind].test
        drawn.append(found)
    return drawn


@pytest.mark.simulation
@pytest.mark.parametrize("way", ["held out", "cross-validated"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_interval_of_the_selected_locus_covers_chance(setting: str, kind: str, way: str) -> None:
    intervals = [average(found[f"{kind}, {way}"][0]).auroc for found in _by_chance(setting)]
    assert np.mean([_covers(interval, 0.5) for interval in intervals]) >= 0.95 - _margin(0.95, len(intervals))
    estimates = np.array([interval.estimate for interval in intervals])
    assert abs(estimates.mean() - 0.5) < 3 * estimates.std() / np.sqrt(len(estimates))


@pytest.mark.simulation
@pytest.mark.parametrize("kind", KINDS)
def test_nested_selection_and_dependent_folds_are_what_makes_it_cover(kind: str) -> None:
    """Controls, over settings: folds taken as independent cover too seldom; a locus chosen with its test is biased."""
    drawn = [found[f"{kind}, cross-validated"] for s in SETTINGS if s != "pairs" for found in _by_chance(s)]

    def naive(folds: list[Discrimination]) -> Estimate:
        units = [sum(getattr(fold, side) for fold in folds) for side in ("groups_positive", "groups_negative")]
        return auroc_interval(average(folds).auroc.estimate, *units)

    right, short = ([_covers(of(folds), 0.5) for folds, _ in drawn] for of in (lambda f: average(f).auroc, naive))
    assert np.mean(right) >= 0.95 - _margin(0.95, len(drawn))
    assert np.mean(short) < 0.95 - _margin(0.95, len(drawn))
    assert np.mean([best.auroc.estimate for _, best in drawn]) > 0.52


def _truth(weights: np.ndarray, delta: np.ndarray, setting: str) -> float:
    """Return the mean over fits of the AUROC of w on classes N(0, S) and N(delta, S): phi(w delta / sqrt(2 w S w))."""
    shared, own = _covariance(setting)
    spread = np.sqrt(2 * (weights**2 @ (shared**2 + own**2)))
    return float(norm.cdf(weights @ delta / spread).mean())


def _planted(setting: str, strength: float, kind: str, n: int, way: str) -> Iterator[tuple[Discrimination, float]]:
    """Yield what is measured of a direction fitted to classes of this AUROC, and the true AUROC of what was fitted."""
    contrast = _contrast(setting, 120)
    make = ProbeGrid.held_out if way == "held out" else ProbeGrid.cross_validated
    (folds,), y, rows = make([contrast], n_inner=2).folds, contrast.y, contrast.rows
    train = np.stack([np.isin(rows, fold.train) for fold in folds])
    shared, own = _covariance(setting)
    delta = np.eye(D)[1] * np.sqrt(2) * norm.ppf(strength) * np.hypot(shared, own)[1]
    for seed in range(n):
        rng = np.random.default_rng([seed, SETTINGS.index(setting), int(strength * 1e4)])
        X = _stream(setting, contrast.groups, rng)[0, 0] + y[:, None] * delta
        if kind == MEANS:
            weights = np.stack([X[inside & y].mean(axis=0) - X[inside & ~y].mean(axis=0) for inside in train])
            scores = mean_scores(X, train, np.tile(y, (len(train), 1)))
        else:
            fits = fit_logistic_batch(X, train, np.tile(y, (len(train), 1)), [1e-2])
            weights, scores = fits.weight[:, 0], fits.scores[:, 0]
        tested = zip((fold.test for fold in folds), scores, strict=True)
        measured = [discrimination(y[rows], score[rows], contrast.groups[rows]) for rows, score in tested]
        yield average(measured), _truth(weights, delta, setting)


@pytest.mark.simulation
@pytest.mark.parametrize("way", ["held out", "cross-validated"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("strength", [0.6, 0.9, 0.99, 0.9999])
def test_intervals_cover_the_true_auroc_of_what_was_fitted(strength: float, setting: str, way: str) -> None:
    drawn = list(_planted(setting, strength, MEANS, 60, way))
    assert np.mean([_covers(measured.auroc, truth) for measured, truth in drawn]) >= 0.95 - _margin(0.95, len(drawn))
    if strength == 0.9999 and setting == "single rows":
        perfect = [(measured, truth) for measured, truth in drawn if measured.auroc.estimate == 1]
        assert len(perfect) > 40
        assert all(measured.auroc.low < truth < 1 == measured.auroc.high for measured, truth in perfect)


@matrix("strength, setting", [0.7, 0.999], ["single rows", "unequal groups"])
def test_intervals_of_a_logistic_probe_cover_too(strength: float, setting: str) -> None:
    drawn = list(_planted(setting, strength, LOGISTIC, 60, "cross-validated"))
    assert np.mean([_covers(measured.auroc, truth) for measured, truth in drawn]) >= 0.95 - _margin(0.95, len(drawn))


def test_rows_taken_for_groups_cover_too_seldom() -> None:
    """The control: the same estimates with as many units as rows."""
    drawn = list(_planted("unequal groups", 0.9, MEANS, 60, "held out"))
    naive = [auroc_interval(m.auroc.estimate, m.n_positive, m.n_negative) for m, _ in drawn]
    covered = np.mean([_covers(interval, truth) for interval, (_, truth) in zip(naive, drawn, strict=True)])
    assert covered < 0.95 - _margin(0.95, len(drawn))


def _measured(rng: np.random.Generator, strength: float, n: int) -> Discrimination:
    y = np.arange(2 * n) < n
    return discrimination(y, rng.standard_normal(2 * n) + np.sqrt(2) * norm.ppf(strength) * y, np.arange(2 * n))


def test_a_fold_worth_few_groups_makes_the_mean_as_uncertain_as_it_is() -> None:
    """Folds count alike in the mean, so the small one's variance counts in full; the sum of groups would hide it."""
    right, summed = [], []
    for seed in range(300):
        rng, sizes = np.random.default_rng(seed), (2, 60, 60, 60)
        folds = [_measured(rng, 0.8, n) for n in sizes]
        units = effective_number(np.ones(sum(sizes)))
        right.append(_covers(average(folds).auroc, 0.8))
        summed.append(_covers(auroc_interval(average(folds).auroc.estimate, units / (7 / 3), units / (7 / 3)), 0.8))
    assert np.mean(right) >= 0.95 - _margin(0.95, 300)
    assert np.mean(summed) < 0.95 - _margin(0.95, 300)  # the control


def test_the_average_of_equal_folds_is_worth_their_groups_less_what_they_share() -> None:
    rng = np.random.default_rng(0)
    folds = [_measured(rng, 0.8, 20) for _ in range(5)]
    mean = average(folds)
    estimates = [fold.auroc.estimate for fold in folds]
    assert mean.auroc == auroc_interval(np.mean(estimates), 100 / 2.25, 100 / 2.25)
    assert (mean.n_positive, mean.n_negative, mean.groups_positive) == (100, 100, pytest.approx(100))
    assert mean.balanced_accuracy == pytest.approx(np.mean([fold.balanced_accuracy for fold in folds]))
    assert mean.recall_at_1pct_fpr == pytest.approx(np.mean([fold.recall_at_1pct_fpr for fold in folds]))
    assert average(folds[:1]) == folds[0]


def test_scores_of_different_folds_are_never_pooled() -> None:
    """Folds apart by more than the classes are: within each all is well, pooled it would be chance."""
    rng = np.random.default_rng(1)
    y, folds = np.arange(40) < 20, []
    for fold in range(5):
        score = 3.0 * y + 100 * fold * rng.choice([-1, 1]) + 0.1 * rng.standard_normal(40)
        folds.append(discrimination(y, score, np.arange(40)))
    assert average(folds).auroc.estimate == 1.0


def _two_sides(setting: str, seed: int, signal: tuple[float, float] = (0, 0)) -> tuple[tuple[np.ndarray, ...], ...]:
    rng, sides = np.random.default_rng([seed, SETTINGS.index(setting)]), []
    for by in signal:
        y, groups = _labels(setting, 48, rng)
        sides.append((_stream(setting, groups, rng)[0, 0] + by * y[:, None] * np.eye(D)[1], y, groups))
    return tuple(sides)


def _null(
    setting: str, seed: int, signal: tuple[float, float] = (0, 0), logistic: bool = False, n: int = 19
) -> NullAUROC:
    (X, y, groups), (Z, z, test_groups) = _two_sides(setting, seed, signal)
    together = {"groups": groups, "test_groups": test_groups, "n": n, "seed": seed}
    return null_auroc(X, y, Z, z, C=1e-2 if logistic else None, **together)


def _honest(p: list[float], exact: bool = True) -> None:
    for level in (0.05, 0.1, 0.25, 0.5):
        found = np.mean(np.array(p) <= level + 1e-9)
        assert found <= level + _margin(level, len(p))
        assert not exact or found >= level - _margin(level, len(p))


@draws(20, 100)
@pytest.mark.parametrize("setting", SETTINGS)
def test_p_values_are_uniform_on_labels_that_mean_nothing(setting: str, n_draws: int) -> None:
    nulls = [_null(setting, seed) for seed in range(n_draws)]
    _honest([null.p_fitted for null in nulls])
    _honest([null.p_tested for null in nulls])
    _honest([null.p_permutation for null in nulls], exact=False)


@draws(12, 50)
@pytest.mark.parametrize("setting", SETTINGS)
def test_p_values_of_a_logistic_probe_are_uniform_too(setting: str, n_draws: int) -> None:
    nulls = [_null(setting, seed, logistic=True) for seed in range(n_draws)]
    _honest([null.p_fitted for null in nulls])
    _honest([null.p_permutation for null in nulls], exact=False)


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("setting", SETTINGS[:3])
def test_p_values_are_small_on_a_planted_direction(setting: str, logistic: bool) -> None:
    """In so many dimensions that directions of permuted labels hardly lean on it; in few they reach as far."""
    small = 0
    for seed in range(10):
        rng, sides = np.random.default_rng([seed, 5]), []
        for _ in range(2):
            y, groups = _labels(setting, 80, rng)
            X = rng.standard_normal((len(y), 60)) + 0.5 * rng.standard_normal((80, 60))[groups]
            sides.append((X + 2.5 * y[:, None] * np.eye(60)[1], y, groups))
        (X, y, groups), (Z, z, other) = sides
        given = {"groups": groups, "test_groups": other, "n": 19}
        null = null_auroc(X, y, Z, z, C=1e-2 if logistic else None, **given)
        small += null.p_permutation <= 0.05
    assert small >= 8


def _pairs_that_share_noise(seed: int, signal: float, d: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw 24 pairs that share much along all axes but the first, which alone may tell their classes apart."""
    rng, groups, y = np.random.default_rng(seed), np.repeat(np.arange(24), 2), np.tile([True, False], 24)
    X = rng.standard_normal((48, d)) + 3 * (np.arange(d) > 0) * rng.standard_normal((24, d))[groups]
    return X + signal * y[:, None] * np.eye(d)[0], y, groups


@pytest.mark.slow
@pytest.mark.parametrize("logistic", [False, True])
def test_the_larger_of_two_p_values_is_valid_where_one_alone_is_not(logistic: bool) -> None:
    """A real fit on test labels that mean nothing; and labels that meant nothing, tested where any direction reads."""
    real, leaning = [], []
    for seed in range(300):
        given = {"n": 19, "seed": seed} | ({"C": 1e-2} if logistic else {})
        X, y, groups = _pairs_that_share_noise(2 * seed, 4.0)
        Z, z, other = _pairs_that_share_noise(2 * seed + 1, 0.0)
        real.append(null_auroc(X, y, Z, z, groups=groups, test_groups=other, **given))
        if seed >= 60:
            continue
        (X, y, groups), (Z, z, other) = _two_sides("a dominant component", seed)
        Z = Z + 15 * z[:, None] * np.eye(D)[0]
        leaning.append(null_auroc(X, y, Z, z, groups=groups, test_groups=other, **given))
    _honest([null.p_permutation for null in real], exact=False)
    _honest([null.p_permutation for null in leaning], exact=False)
    assert np.mean([null.p_fitted <= 0.05 for null in real]) > 0.05 + _margin(0.05, len(real))  # the controls
    assert np.mean([null.p_tested <= 0.05 for null in leaning]) > 0.05 + _margin(0.05, len(leaning))


def test_fields_of_a_null_have_their_documented_values() -> None:
    null = _null("single rows", 0, (3, 3), logistic=True)
    assert null.p_permutation == max(null.p_fitted, null.p_tested) == 1 / 20
    assert null.observed > null.permutation_95 > null.mean
    assert (null.n, null.random_direction_95) == (19, None)
    assert _null("single rows", 0, (3, 3)).random_direction_95 is not None
    assert null == _null("single rows", 0, (3, 3), logistic=True)


def test_the_simulations_have_the_planted_strength() -> None:
    """The truth they compare with is right: many rows of one fitted direction reach it."""
    rng, delta = np.random.default_rng(3), np.eye(D)[1] * 3
    y, groups = np.arange(20_000) % 2 == 0, np.arange(20_000) // 4
    w = np.ones(D) + np.eye(D)[1]
    X = _stream("one-label groups", groups, rng)[0, 0] + y[:, None] * delta
    expected = _truth(w[None], delta, "one-label groups")
    assert discrimination(y, X @ w, groups).auroc.estimate == pytest.approx(expected, abs=0.02)
    assert all(a < b for a, b in pairwise([_truth(w[None], k * delta, "pairs") for k in range(4)]))
