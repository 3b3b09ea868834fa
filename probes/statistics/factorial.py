"""Partial eta squared of two crossed factors and of their interaction, over groups.

Every group has all four cells of the 2 x 2 design (a block of minimal pairs), so each effect is one contrast per group
and is tested against its variation between groups, as in a repeated-measures analysis of variance with one degree of
freedom (Maxwell & Delaney, Designing Experiments, ch. 12). With c of shape (n_groups,) the contrast,

    partial eta^2 = n mean(c)^2 / sum(c^2) = d^2 / (d^2 + (n - 1) / n),  d = mean(c) / sd(c).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student

from probes.statistics.permutation import ROUNDING, permutation_p
from probes.statistics.seeds import named_rng

N_FLIPS = 999
CELLS = ((1, 1), (1, 0), (0, 1), (0, 0))  # (first factor, second factor), in the order of the columns
CONTRASTS = {
    "first": np.array([0.5, 0.5, -0.5, -0.5]),
    "second": np.array([0.5, -0.5, 0.5, -0.5]),
    "interaction": np.array([0.5, -0.5, -0.5, 0.5]),
}


@dataclass(frozen=True)
class PartialEta:
    """Partial eta squared of one effect at each of several measurements."""

    estimate: Float[np.ndarray, " measurements"]
    low: Float[np.ndarray, " measurements"]
    high: Float[np.ndarray, " measurements"]
    p: Float[np.ndarray, " measurements"]  # p-value of a sign-flip test
    mean: Float[np.ndarray, " measurements"]  # mean contrast, in the units of the measurement


def partial_eta(
    cells: Float[np.ndarray, "groups 4 measurements"], contrast: Float[np.ndarray, " 4"], *, seed: int
) -> PartialEta:
    """Return partial eta squared of a contrast (of CONTRASTS) of the four cells, in the order of CELLS.

    The interval is Student's for d with the jackknife standard error, without assuming normal measurements. The p-value
    is from sign flips, valid if c and -c are equally likely for a group under no effect; NaN below ten groups. Without
    an effect the estimate is 1 / n on average, not 0, so read it with its p-value. If all groups agree exactly,
    estimate and interval are 1. In simulations of 12 to 150 groups with d from 0 to 3, 95 % intervals contained d in 95
    to 98 % of cases for normal contrasts; for exponential ones in 93 % or more up to d = 1 and 88 % at d = 3, where
    they are too high. A true null was rejected at 5 % in 5 to 6 % of normal and up to 8 % (12 groups) of exponential
    cases. Raises ValueError for fewer than three groups.
    """
    n = len(cells)
    if n < 3:
        raise ValueError(f"partial eta squared needs at least three groups with all four cells; got {n}")
    c = np.einsum("gcm,c->gm", np.asarray(cells, dtype=np.float64), contrast)
    total, squares = c.sum(axis=0), (c**2).sum(axis=0)
    estimate = np.divide(total**2, n * squares, out=np.zeros_like(total), where=squares > 0)
    d = _standardised(total, squares, n)
    without = _standardised(total - c, squares - c**2, n - 1)  # the jackknife
    error = np.sqrt((n - 1) / n * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    half = student.ppf(0.975, n - 1) * error
    near = np.where(np.abs(d) > half, np.abs(d) - half, 0.0)
    signs = named_rng(seed, "sign flips").choice([-1.0, 1.0], size=(N_FLIPS, n))
    p = permutation_p(np.abs(signs @ c), np.abs(total), rounding=ROUNDING * np.abs(total), labellings=2.0**n)
    flipped = np.where(squares > 0, p, 1.0)
    low, high = (at**2 / (at**2 + (n - 1) / n) for at in (near, np.abs(d) + half))
    return PartialEta(estimate, low, high, flipped, total / n)


def _standardised(total: np.ndarray, squares: np.ndarray, n: int) -> np.ndarray:
    """Return mean / sd: 0 if all values are 0, capped if they are equal up to rounding."""
    mean = total / n
    variance = np.maximum(squares - n * mean**2, 0) / (n - 1)
    floor = 1e-12 * np.maximum(squares / n, np.finfo(float).tiny)
    return np.asarray(mean / np.sqrt(np.maximum(variance, floor)))
