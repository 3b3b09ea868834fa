"""Certification of rates: exact one-sided limits, and Learn-then-Test along a path fixed beforehand.

Learn-then-Test (Angelopoulos et al., arXiv 2110.01052): a setting is certified if each of its risks is shown to be at
or below its limit. Settings are tested in an order that does not depend on the sample, up to the first that fails. With
the stated confidence, all certified settings then meet their limits, however many were tested. The test is the exact
binomial tail (Clopper & Pearson 1934), so failures must be independent: one prompt per group. The rate is then that of
a random prompt of a random group.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

import numpy as np
from jaxtyping import Real, Shaped

from probes.statistics.intervals import clopper_pearson
from probes.statistics.seeds import named_rng


def upper_limit(failures: float, n: float, confidence: float) -> float:
    """Return the one-sided upper confidence limit of a rate (Clopper & Pearson); 1 without samples."""
    return clopper_pearson(failures, n, 2 * (1 - confidence)).high


def n_needed(limit: float, confidence: float) -> int:
    """Return the sample size that certifies a limit without failures: n >= ln(1 - confidence) / ln(1 - limit)."""
    if not (0 < limit < 1 and 0 < confidence < 1):
        raise ValueError(f"limit and confidence must be between 0 and 1; got {limit} and {confidence}")
    return ceil(log(1 - confidence) / log(1 - limit) - 1e-9)


def n_at_rate(rate: float, limit: float, confidence: float, most: int = 100_000) -> int | None:
    """Return about how many draws certify a limit if they fail at this rate; None if no number up to `most` does."""

    def certifies(n: int) -> bool:
        return upper_limit(ceil(rate * n - 1e-9), n, confidence) <= limit

    low, high = 0, n_needed(limit, confidence)
    if rate >= limit or not certifies(most):
        return None
    while not certifies(high):
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if certifies(middle) else (middle, high)
    return high


def best_reachable(n: int, confidence: float) -> float:
    """Return the smallest limit that n draws without failures can certify; 1 without draws."""
    return upper_limit(0, n, confidence)


def certified_prefix(
    failures: Real[np.ndarray, ...], n: Sequence[int], limits: Sequence[float], confidence: float
) -> int:
    """Return the number of certified settings, from the start of the path.

    `failures` is (settings, risks), in the order of testing; `n` and `limits` are the draws and the largest allowed
    rate of each risk. A setting passes if *every* risk is certified (an intersection-union test). With the given
    confidence all counted settings meet all their limits, if the path was fixed without using these draws.
    """
    failures = np.asarray(failures)
    if failures.ndim != 2 or failures.shape[1] != len(n) or len(n) != len(limits):
        raise ValueError(
            f"failures must be (n_settings, n_risks); got {failures.shape} with {len(n)} sample sizes and "
            f"{len(limits)} limits"
        )
    most = [allowed_failures(size, limit, confidence) for size, limit in zip(n, limits, strict=True)]
    fails = np.flatnonzero((failures > np.array(most)).any(axis=1))
    return int(fails[0]) if len(fails) else len(failures)


def allowed_failures(n: int, limit: float, confidence: float) -> int:
    """Return the largest number of failures in n draws that certifies a limit; -1 if not even 0 failures do."""
    failures = -1
    while failures < n and upper_limit(failures + 1, n, confidence) <= limit:
        failures += 1
    return failures


def one_per_group(
    rows: Shaped[np.ndarray, " samples"], groups: Shaped[np.ndarray, " samples"], seed: int
) -> Shaped[np.ndarray, " groups"]:
    """Draw one row (an index or a name) of each group; return them in ascending order."""
    order = named_rng(seed, "one per group").permutation(len(rows))
    _, first = np.unique(np.asarray(groups)[order], return_index=True)
    return np.sort(np.asarray(rows)[order[first]])
