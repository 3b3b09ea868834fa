"""AUROC with an interval over groups, and other measures of a score: calibration error, Brier score, d'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Real, Shaped

from probes.statistics.intervals import Estimate, auroc_interval, effective_groups

Labels = Bool[np.ndarray, "*labellings samples"] | Integer[np.ndarray, "*labellings samples"]  # booleans, or 0 and 1
LEAST_OF_CLASS = 5  # samples of each class that an AUROC takes to be reported


@dataclass(frozen=True)
class Discrimination:
    """AUROC with an interval over groups, and companions."""

    auroc: Estimate
    balanced_accuracy: float
    recall_at_1pct_fpr: float
    n_positive: int
    n_negative: int
    groups_positive: float  # effective number of groups (Kish 1965)
    groups_negative: float


def average(folds: Sequence[Discrimination]) -> Discrimination:
    """Average over the folds of one cross-validation, each tested on its own samples.

    Training samples of one fold are test samples of others, so the variance of the mean is (1 / K + 1 / (K - 1)) times
    that of a fold, not 1 / K (Nadeau & Bengio 2003, Inference for the generalization error, section 4); conservative
    with information. Folds have equal weight: the effective number of groups is K^2 / sum(1 / n_k).
    """
    mean = float(np.mean([fold.auroc.estimate for fold in folds]))
    inflation = 1 + len(folds) / (len(folds) - 1) if len(folds) > 1 else 1.0
    positive = len(folds) ** 2 / sum(1 / fold.groups_positive for fold in folds)
    negative = len(folds) ** 2 / sum(1 / fold.groups_negative for fold in folds)
    return Discrimination(
        auroc=auroc_interval(mean, positive / inflation, negative / inflation),
        balanced_accuracy=float(np.mean([fold.balanced_accuracy for fold in folds])),
        recall_at_1pct_fpr=float(np.mean([fold.recall_at_1pct_fpr for fold in folds])),
        n_positive=sum(fold.n_positive for fold in folds),
        n_negative=sum(fold.n_negative for fold in folds),
        groups_positive=positive,
        groups_negative=negative,
    )


def discrimination(
    y: Labels, score: Real[np.ndarray, " samples"], groups: Shaped[np.ndarray, " samples"]
) -> Discrimination:
    """Measure a score on held-out samples; ValueError if a class is empty, or a score is not finite.

    The interval takes the effective number of *groups* of each class as its number of independent units. This is
    conservative if samples of a group differ, and correct if they are copies of each other.
    """
    y, score = np.asarray(y, dtype=bool), np.asarray(score)
    if y.all() or not y.any():
        raise ValueError(f"an AUROC needs both classes; got {int(y.sum())} positive of {len(y)}")
    if bad := int((~np.isfinite(score)).sum()):
        raise ValueError(f"{bad} of {len(y)} scores are NaN or infinite; expected finite scores")
    # The counts of negatives and positives above every threshold, from none to all; ties share a threshold. This is
    # scikit-learn's `roc_curve` in counts, without its input checks, which take longer than the fits of a grid.
    order = np.argsort(-score, kind="stable")
    last = np.append(np.flatnonzero(np.diff(score[order])), len(y) - 1)  # last index of each run of equal scores
    above = np.cumsum(y[order])[last]
    false, true = np.append(0, 1 + last - above), np.append(0, above)
    positive, negative = effective_groups(groups[y]), effective_groups(groups[~y])
    return Discrimination(
        auroc=auroc_interval(auroc(y, score), positive, negative),
        balanced_accuracy=float((score[y] > 0).mean() + (score[~y] <= 0).mean()) / 2,
        recall_at_1pct_fpr=float(true[false <= 0.01 * false[-1]].max() / true[-1]),
        n_positive=int(y.sum()),
        n_negative=int((~y).sum()),
        groups_positive=positive,
        groups_negative=negative,
    )


def auroc_within(
    stratum: Shaped[np.ndarray, " samples"],
    y: Labels,
    score: Real[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
) -> Estimate:
    """Return the AUROC of samples compared within their strata only, such as folds, whose scores are on other scales.

    It is the mean over pairs of a positive and a negative sample of one stratum; NaN where a class has too few. The
    interval is over groups of all strata; of nested folds it is checked by simulation (docs/unspoken.md).
    """
    y = np.asarray(y, dtype=bool)
    if not enough(int(y.sum()), int((~y).sum())):
        return Estimate(float("nan"), 0.0, 1.0)
    rows = [np.flatnonzero(stratum == one) for one in np.unique(stratum)]
    pairs = np.array([y[own].sum() * (~y[own]).sum() for own in rows], dtype=float)
    each = np.array([auroc(y[own], score[own]) for own in rows])
    mean = float((pairs * np.nan_to_num(each)).sum() / pairs.sum()) if pairs.any() else float("nan")
    return auroc_interval(mean, effective_groups(groups[y]), effective_groups(groups[~y]))


def enough(n_positive: int, n_negative: int) -> bool:
    """Return whether both classes have the samples that an AUROC takes to be reported."""
    return min(n_positive, n_negative) >= LEAST_OF_CLASS


def auroc(y: Labels, score: Real[np.ndarray, " samples"]) -> float:
    """Return the AUROC of one score, with ties counted half (Mann & Whitney 1947); NaN if a class is empty."""
    return float(aurocs(score, y))


def aurocs(scores: Real[np.ndarray, "*scores samples"], y: Labels) -> Float[np.ndarray, "*scores_or_labellings"]:
    """Return the AUROC of each row of scores against its labels; one row of either goes with all of the other."""
    from scipy.stats import rankdata  # it takes long to import, and reading results does not need it

    y = np.asarray(y, dtype=bool)
    n_positive, rank_sum = y.sum(axis=-1), (rankdata(scores, axis=-1) * y).sum(axis=-1)
    pairs = np.asarray(n_positive * (y.shape[-1] - n_positive), dtype=float)
    above = rank_sum - n_positive * (n_positive + 1) / 2
    return np.divide(above, pairs, out=np.full(np.shape(above), np.nan), where=pairs > 0)


def expected_calibration_error(y: Labels, probability: Float[np.ndarray, " samples"], n_bins: int = 10) -> float:
    """Return the mean gap between probability and frequency over equal-count bins, weighted by count.

    Equal probabilities share a bin, so the result does not depend on the order of rows.
    """
    rank = np.searchsorted(np.sort(probability), probability)  # rank of the first row with this probability
    bins = [np.flatnonzero(rank * n_bins // len(y) == b) for b in range(n_bins)]
    return float(sum(len(b) * abs(y[b].mean() - probability[b].mean()) for b in bins if len(b)) / len(y))


def brier(y: Labels, probability: Float[np.ndarray, " samples"]) -> float:
    """Return the mean squared error of probabilities."""
    return float(np.mean((probability - y) ** 2))


def d_prime(y: Labels, score: Real[np.ndarray, " samples"]) -> float:
    """Return the distance of the two classes' mean scores in units of their pooled standard deviation."""
    y = np.asarray(y, dtype=bool)
    score = score - score[0]  # else the rounding error of a mean of equal numbers would be a gap and a spread
    spread = float(np.sqrt((score[y].var() + score[~y].var()) / 2))
    gap = float(score[y].mean() - score[~y].mean())
    return gap / spread if spread > 0 else float("inf") * np.sign(gap) if gap else 0.0
