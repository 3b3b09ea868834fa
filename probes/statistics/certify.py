"""Certification of rates: exact one-sided limits, and Learn-then-Test along a path fixed beforehand.

Learn-then-Test (Angelopoulos et al., arXiv 2110.01052): a setting is certified where every risk it is asked about is
shown to lie at or below its limit. Settings are tried in an order that owes nothing to the sample, and trying ends at
the first that fails; then, with the stated confidence, no certified setting is at fault, however many were tried. The
exact tail of the binomial is the test (Clopper & Pearson 1934), so failures have to be of independent draws: one prompt
of each group. The rate is then that of a prompt drawn from a group drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

import numpy as np
from jaxtyping import Real, Shaped

from probes.statistics.intervals import clopper_pearson
from probes.statistics.seeds import named_rng


def upper_limit(failures: float, n: float, confidence: float) -> float:
    """Return what the rate is at most, with this confidence (Clopper & Pearson, one-sided); 1 without any sample."""
    return clopper_pearson(failures, n, 2 * (1 - confidence)).high


def n_needed(limit: float, confidence: float) -> int:
    """Return the least sample that certifies a limit, if none of it fails: n >= ln(1 - confidence) / ln(1 - limit).

    Raises:
        ValueError: limit or confidence does not lie between 0 and 1.
    """
    if not (0 < limit < 1 and 0 < confidence < 1):
        raise ValueError(f"limit and confidence lie between 0 and 1; got {limit} and {confidence}")
    return ceil(log(1 - confidence) / log(1 - limit) - 1e-9)


def n_at_rate(rate: float, limit: float, confidence: float, most: int = 100_000) -> int | None:
    """Return about how many draws certify a limit, if they fail as often as this; None where no number does."""

    def stands(n: int) -> bool:
        return upper_limit(ceil(rate * n - 1e-9), n, confidence) <= limit

    low, high = 0, n_needed(limit, confidence)
    if rate >= limit or not stands(most):
        return None
    while not stands(high):
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if stands(middle) else (middle, high)
    return high


def best_reachable(n: int, confidence: float) -> float:
    """Return the least limit that n draws can certify, if none of them fails; 1 without any."""
    return upper_limit(0, n, confidence)


def certified_prefix(
    failures: Real[np.ndarray, ...], n: Sequence[int], limits: Sequence[float], confidence: float
) -> int:
    """Count the settings that are certified, from the first of the path on.

    Args:
        failures: (settings, risks) failures of each setting, in the order in which they are tried.
        n: draws that each risk is counted on.
        limits: what the rate of each risk may be at most.

    A setting passes where the upper limit of *every* risk stands (an intersection-union test, which needs no further
    correction). With confidence `confidence` each one counted here meets all its limits, given that the path was fixed
    without looking at these draws.
    """
    failures = np.asarray(failures)
    if failures.ndim != 2 or failures.shape[1] != len(n) or len(n) != len(limits):
        raise ValueError(f"failures are (n_settings, n_risks); got {failures.shape} with {len(n)} sample sizes and "
                         f"{len(limits)} limits")  # fmt: skip
    most = [allowed_failures(size, limit, confidence) for size, limit in zip(n, limits, strict=True)]
    fails = np.flatnonzero((failures > np.array(most)).any(axis=1))
    return int(fails[0]) if len(fails) else len(failures)


def allowed_failures(n: int, limit: float, confidence: float) -> int:
    """Return with how many failures of n draws a limit is still certified; -1 where not even with none."""
    failures = -1
    while failures < n and upper_limit(failures + 1, n, confidence) <= limit:
        failures += 1
    return failures


def one_per_group(
    rows: Shaped[np.ndarray, " samples"], groups: Shaped[np.ndarray, " samples"], seed: int
) -> Shaped[np.ndarray, " groups"]:
    """Draw one of the rows of each group; returns them in order.

    Args:
        rows: whatever names the rows.
        groups: what each belongs to.
    """
    order = named_rng(seed, "one per group").permutation(len(rows))
    _, first = np.unique(np.asarray(groups)[order], return_index=True)
    return np.sort(np.asarray(rows)[order[first]])
