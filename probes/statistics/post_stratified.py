"""A rate of all samples from a cheap guess for each of them and the truth for some drawn at random.

Prediction-powered inference (arXiv 2301.09633) for a binary guess, as a post-stratified mean (Cochran 1977, 5A.9): the
samples are divided by the guess, and each stratum's known share counts times the mean truth of its drawn samples. Where
the drawn samples have the guessed share of all, this is mean(guess) - mean(guess - truth); elsewhere its variance is
smaller.

The interval is Clopper and Pearson's at an effective number of samples (Korn & Graubard 1998). Its variance is that of
the strata with one more sample at either bound (Bonett & Price 2012), so it has a width when no guess was seen to be
wrong. Compared with five other intervals in benchmarks/simulations/judge_error.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from probes.statistics.intervals import Estimate, clopper_pearson

UNLIKELY = 0.01  # a random draw misses a stratum of this share or more less often than this: it is not one


@dataclass(frozen=True)
class Stratum:
    """Samples with the same guess."""

    share: float  # of all samples
    mean: float  # truth of its drawn samples, between 0 and 1
    n: float  # effective number of them


def post_stratified_rate(strata: Sequence[Stratum], n_groups: float) -> Estimate:
    """Return the rate with its interval; (nan, 0, 1) where the drawn samples cannot be a random draw.

    A stratum of which nothing was drawn is joined with the others if it is so small that a random draw may miss it.
    `n_groups` is the effective number of groups of all samples, which limits the interval whatever is drawn.
    """
    if not (strata := _joined(strata)):
        return Estimate(float("nan"), 0.0, 1.0)
    estimate = sum(stratum.share * stratum.mean for stratum in strata)
    n = _effective_samples(strata, n_groups)
    return replace(clopper_pearson(min(estimate, 1.0) * n, n), estimate=estimate)


def draws_to_halve(strata: Sequence[Stratum], n_groups: float, drawn: int, samples: int) -> int | None:
    """Return how many drawn samples would halve the interval's width; None if drawing all would not.

    More draws do not reduce the part of the width that comes from the number of groups of all samples.
    """
    others = samples / n_groups - 1  # of the group of a sample

    from scipy.optimize import brentq  # it takes long to import and is needed seldom

    def width(factor: float) -> float:
        crowding = (1 + others * drawn / samples) / (1 + others * factor * drawn / samples)  # more draws share a group
        more = [replace(stratum, n=stratum.n * factor * crowding) for stratum in strata]
        interval = post_stratified_rate(more, n_groups)
        return interval.high - interval.low

    half, most = width(1.0) / 2, samples / drawn
    if most <= 1 or width(most) > half:
        return None
    return ceil(drawn * brentq(lambda factor: width(factor) - half, 1.0, most, rtol=1e-4))


def _joined(strata: Sequence[Stratum]) -> list[Stratum]:
    drawn = [stratum for stratum in strata if stratum.n > 0]
    n = sum(stratum.n for stratum in drawn)
    missed = sum(stratum.share for stratum in strata if stratum.n <= 0)
    if not drawn or (missed > 0 and (1 - missed) ** n < UNLIKELY):
        return []
    if not missed:
        return drawn
    mean = sum(stratum.share * stratum.mean for stratum in drawn) / sum(stratum.share for stratum in drawn)
    return [Stratum(1.0, mean, n)]


def _effective_samples(strata: Sequence[Stratum], n_groups: float) -> float:
    """Return the number of independent samples whose rate would have the variance of the estimate."""
    means = [(stratum.mean * stratum.n + 1) / (stratum.n + 2) for stratum in strata]
    rate = sum(stratum.share * mean for stratum, mean in zip(strata, means, strict=True))
    within = sum(s.share**2 * mean * (1 - mean) / s.n for s, mean in zip(strata, means, strict=True))
    between = sum(s.share * (mean - rate) ** 2 for s, mean in zip(strata, means, strict=True))
    return rate * (1 - rate) / (within + between / n_groups)
