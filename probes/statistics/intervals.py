"""Confidence intervals, valid at 0 and 1: rates, linear combinations, AUROC, means over groups, agreement.

`n` may be fractional: for clustered samples it is the effective number of groups (Kish 1965), not the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Annotated, Any, Self, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Real, Shaped
from pydantic import BeforeValidator, PlainSerializer, SerializerFunctionWrapHandler, model_serializer
from scipy.special import betaincinv, ndtri, stdtrit

Number = Annotated[  # not finite: null in JSON, and null is NaN
    float,
    BeforeValidator(lambda v: float("nan") if v is None else v),
    PlainSerializer(lambda v: v if isfinite(v) else None, when_used="json"),
]
LIMITED = ("estimate", "low", "high")
Limits = tuple[float, float]  # of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % limits (unless a field's name says otherwise), in memory and in JSON; NaN without data.

    `f"{estimate:.1%}"` gives `20.2% [12.6%, 29.7%]`, and `none judged` where the estimate is NaN. In JSON numbers that
    are not finite are null, and a field that is None is left out.
    """

    estimate: Number
    low: Number
    high: Number
    n: int | None = None
    n_groups: float | None = None  # effective number (Kish 1965)

    @property
    def known(self) -> bool:
        """Whether there was data for an estimate."""
        return bool(np.isfinite(self.estimate))

    def within(self, low: float, high: float) -> bool:
        """Return whether the whole interval is inside [low, high]."""
        return bool(self.low >= low and self.high <= high)

    def limits(self) -> tuple[float, float, float]:
        """Return the estimate, its lower and its upper limit."""
        return self.estimate, self.low, self.high

    def times(self, scale: float, shift: float = 0.0) -> Self:
        """Return scale times the estimate, plus shift; scale is positive."""
        return replace(self, **{k: scale * getattr(self, k) + shift for k in LIMITED})

    def counted(self, n: int, groups: Shaped[np.ndarray, " n"] | None = None) -> Self:
        """Return the estimate with its number of prompts, and the effective number of their groups, if given."""
        return replace(self, n=n, n_groups=None if groups is None else round(effective_groups(groups), 2))

    def __format__(self, spec: str) -> str:
        """Return `estimate [low, high]`, each number in the given format."""
        return f"{self.estimate:{spec}} [{self.low:{spec}}, {self.high:{spec}}]" if self.known else "none judged"

    @classmethod
    def of(cls, estimate: Estimate, **more: Any) -> Self:
        """Return an estimate as one of this class, with further fields."""
        return cls(**vars(estimate) | more)

    @model_serializer(mode="wrap")
    def _written(self, plain: SerializerFunctionWrapHandler) -> Any:
        return {name: value for name, value in plain(self).items() if value is not None or name in LIMITED}


NO_ESTIMATE = Estimate(float("nan"), float("nan"), float("nan"))
NO_DIFFERENCE = Estimate(float("nan"), -1.0, 1.0)
NO_RATE = Estimate(float("nan"), 0.0, 1.0, n=0, n_groups=0.0)


def effective_number(sizes: Real[np.ndarray, " groups"]) -> float:
    """Return the effective number of groups of these sizes, (sum m)^2 / sum m^2 (Kish 1965): that of equal groups."""
    sizes = np.asarray(sizes, dtype=float)
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else 0.0


def effective_groups(groups: Shaped[np.ndarray, " samples"]) -> float:
    """Return the effective number of groups of samples, from the group of each sample."""
    return effective_number(np.unique(groups, return_counts=True)[1])


def group_means(
    values: Real[np.ndarray, " samples"] | Bool[np.ndarray, " samples"], groups: Shaped[np.ndarray, " samples"]
) -> Float[np.ndarray, " groups"]:
    """Return the mean of each group's values, in the order of the groups' names."""
    code = np.unique(groups, return_inverse=True)[1].reshape(-1)
    return np.bincount(code, weights=values) / np.bincount(code)


def mean_over_groups(
    values: Real[np.ndarray, " samples"] | Bool[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"] | None = None,
) -> float:
    """Return the mean of the groups' means, NaN without samples; without groups every sample is its own.

    Of independent groups with values in [0, 1] it varies no more than as many independent outcomes of the same mean do
    (Hoeffding 1963), whatever the sizes and the correlation within groups. So an interval of a rate at the bare number
    of groups is conservative, and narrower than that of the mean over samples at their effective number.
    """
    if len(values) == 0:
        return float("nan")
    return float(np.mean(values if groups is None else group_means(values, groups)))


def grouped_mean(
    values: Real[np.ndarray, " samples"] | Bool[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    alpha: float = 0.05,
    least: float = -np.inf,
) -> Estimate:
    """Return the mean of values with a t interval over groups, valid for any group sizes and correlation within groups.

    The standard error is from the jackknife over groups (CR3, Bell & McCaffrey 2002), because a large group pulls the
    mean towards itself, so that its residual is too small. Degrees of freedom are the effective number of groups minus
    one. With one value per group it is Student's interval; with a single group it is unbounded. It is for means of
    values such as nats; for rates near 0 and 1 it is too narrow. The lower limit is at least `least`.
    """
    if len(values) == 0:
        return Estimate(float("nan"), least, np.inf)
    mean = float(np.mean(values))
    _, code, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return Estimate(mean, least, np.inf)
    off = np.bincount(code, weights=values - mean) / (1 - sizes / len(values))
    error = float(np.sqrt((off**2).sum() * (1 - 1 / len(sizes)))) / len(values)
    half = error * float(stdtrit(max(1.0, effective_number(sizes) - 1), 1 - alpha / 2))
    return Estimate(mean, max(least, mean - half), mean + half)


def clopper_pearson(hits: float, n: float, alpha: float = 0.05) -> Estimate:
    """Return the interval of Clopper & Pearson (1934); no data give (nan, 0, 1).

    Exact for n independent outcomes; at an effective number of groups, which may be a fraction, conservative.
    """
    if n <= 0:
        return Estimate(float("nan"), 0.0, 1.0)
    low = 0.0 if hits <= 0 else float(betaincinv(hits, n - hits + 1, alpha / 2))
    high = 1.0 if hits >= n else float(betaincinv(hits + 1, n - hits, 1 - alpha / 2))
    return Estimate(hits / n, low, high)


def wilson(hits: float, n: float, alpha: float = 0.05) -> Estimate:
    """Return the score interval of a rate (Wilson 1927)."""
    if n <= 0:
        return Estimate(float("nan"), 0.0, 1.0)
    z = float(ndtri(1 - alpha / 2))
    p = hits / n
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and 1 the limit is exact; the formula has a rounding error and could exclude the true value.
    low = 0.0 if hits <= 0 else float(max(0.0, (centre - half) / scale))
    high = 1.0 if hits >= n else float(min(1.0, (centre + half) / scale))
    return Estimate(p, low, high)


def difference(a: Estimate, b: Estimate, correlation: float = 0.0) -> Estimate:
    """Return the interval of a - b; see `combination`."""
    return combination((1, -1), (a, b), np.array([[1, correlation], [correlation, 1]]))


def combination(
    weights: Sequence[float], rates: Sequence[Estimate], correlation: Float[np.ndarray, "rates rates"] | None = None
) -> Estimate:
    """Return the interval of sum(w_i p_i) (MOVER, Zou & Donner 2008); without `correlation` they are independent."""
    w = np.array(weights, dtype=float)
    value, low, high = np.array([rate.limits() for rate in rates]).T
    R = np.eye(len(w)) if correlation is None else correlation
    below = w * (value - np.where(w > 0, low, high))
    above = w * (np.where(w > 0, high, low) - value)
    R = R * np.sign(np.outer(w, w))  # correlation of the weighted terms
    estimate = float(w @ value)
    return Estimate(
        estimate,
        estimate - float(np.sqrt(max(0.0, below @ R @ below))),
        estimate + float(np.sqrt(max(0.0, above @ R @ above))),
    )


def auroc_interval(auroc: float, n_positive: float, n_negative: float, alpha: float = 0.05) -> Estimate:
    """Return an interval of an AUROC that is valid at 1.0 (Newcombe 2006, method 5: a score-type inversion).

    The numbers of each class are of independent units (groups, if rows are clustered).
    """
    if n_positive < 1 or n_negative < 1 or not np.isfinite(auroc):
        return Estimate(auroc, 0.0, 1.0)
    z = float(ndtri(1 - alpha / 2))

    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    def gap(theta: float) -> float:
        mean_n = (n_positive + n_negative) / 2
        inner = 1 + (mean_n - 1) * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        variance = theta * (1 - theta) * inner / (n_positive * n_negative)
        return float((auroc - theta) ** 2 - z * z * variance)

    # At the estimate the gap is never positive; at 0 and 1 it is positive, or the limit is 0 or 1.
    near = 1e-9
    low = 0.0 if auroc <= near or gap(0.0) <= 0 else float(brentq(gap, 0.0, auroc - near))
    high = 1.0 if auroc >= 1 - near or gap(1.0) <= 0 else float(brentq(gap, auroc + near, 1.0))
    return Estimate(auroc, low, high)


def agreement(
    a: Shaped[np.ndarray, " samples"],
    b: Shaped[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    weights: Float[np.ndarray, " samples"],
) -> tuple[Estimate, Estimate]:
    """Return the share of samples with equal labels, and kappa: that share beyond chance (Cohen 1960).

    Weights are one over a sample's probability of being drawn. The interval of the share is Clopper and Pearson's at
    the effective number of groups. That of kappa takes the agreement by chance as known, so it has a width when all
    labels are equal. Kappa is NaN where both give every sample the same label: all agreement may be chance.
    """
    if len(a) == 0:
        return Estimate(float("nan"), 0.0, 1.0), NO_DIFFERENCE
    share = weights / weights.sum()
    equal = float(share[a == b].sum())
    chance = sum(float(share[a == label].sum() * share[b == label].sum()) for label in np.unique(a))
    code = np.unique(groups, return_inverse=True)[1].reshape(-1)
    n = effective_number(np.bincount(code, weights))
    raw = clopper_pearson(min(equal, 1.0) * n, n)
    if chance > 1 - 1e-9:
        return raw, NO_DIFFERENCE
    kappa = (np.array([equal, raw.low, raw.high]) - chance) / (1 - chance)
    return raw, Estimate(*kappa.tolist())


# -- paired differences of rates ---------------------------------------------------------------------------------------

NEAR = 1e-9
TINY = 1e-30  # added to a variance to avoid division by zero
Shares = TypeVar("Shares", float, Float[np.ndarray, " tables"])


def tango(
    a: Shaped[np.ndarray, " samples"], b: Shaped[np.ndarray, " samples"], n: float | None = None, alpha: float = 0.05
) -> Estimate:
    """Return Tango's score interval of mean(a) - mean(b) for paired binary outcomes (1998, Stat. Med. 17:891).

    It inverts the score test of each difference, with the rate of opposite discordant pairs at its most likely value
    under that difference. If a decision depends on one limit, its error rate is closer to nominal than that of
    Newcombe's method 10, also at 0 and 1 (docs/notes/what-did-not-work.md). No pairs give (nan, -1, 1). `n` is the
    number of independent groups, if smaller than the number of subjects.
    """
    a, b = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    if len(a) == 0:
        return NO_DIFFERENCE
    return tango_of_shares(float(np.mean(a & ~b)), float(np.mean(~a & b)), float(len(a) if n is None else n), alpha)


def tango_of_shares(only_a: float, only_b: float, n: float, alpha: float = 0.05) -> Estimate:
    """Return the same interval from the shares of pairs with only the first, and only the second, outcome true."""
    if np.isnan(only_a):
        return NO_DIFFERENCE

    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    z = float(ndtri(1 - alpha / 2))

    def upper(a: float, b: float) -> float:  # the difference at which the statistic, which decreases, equals -z
        if a - b >= 1 - 2 * NEAR or tango_score(a, b, n, 1 - NEAR) + z >= 0:
            return 1.0
        return float(brentq(lambda d: tango_score(a, b, n, d) + z, max(a - b, -1 + NEAR), 1 - NEAR, xtol=1e-10))

    return Estimate(only_a - only_b, -upper(only_b, only_a), upper(only_a, only_b))


def lies_within(
    only_a: Float[np.ndarray, " tables"],
    only_b: Float[np.ndarray, " tables"],
    n: float,
    where: tuple[float, float],
    alpha: float = 0.05,
) -> Bool[np.ndarray, " tables"]:
    """Return for each table whether its interval is inside an open range, without computing the interval."""
    z = float(ndtri(1 - alpha / 2))
    above = where[0] < -1 or tango_score(only_a, only_b, n, where[0]) > z
    below = where[1] > 1 or tango_score(only_a, only_b, n, where[1]) < -z
    return np.broadcast_to(above, np.shape(only_a)) & below


def tango_score(only_a: Shares, only_b: Shares, n: float, difference: float) -> Shares:
    """Return the score statistic, standard normal if `difference` (between -1 and 1) is the true difference."""
    B = (2 - only_a + only_b) * difference - only_a - only_b
    C = -only_b * difference * (1 - difference)
    against = (abs(B * B - 8 * C) ** 0.5 - B) / 4  # the restricted rate of pairs with only the second true
    variance = 2 * against + difference * (1 - difference)
    return (only_a - only_b - difference) * (n / (abs(variance) + TINY)) ** 0.5
