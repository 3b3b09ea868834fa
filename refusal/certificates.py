"""Certificates of a rate: what a finite sample shows with a stated confidence, by the exact one-sided limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extract.errors import UserError
from probes.statistics.certify import n_needed, upper_limit


@dataclass(frozen=True)
class Certificate:
    """A rate is at most `at_most`, with this confidence, given so many failures in independent draws.

    >>> import refusal
    >>> round(refusal.certify(failures=1, n=100).at_most, 4)
    0.0466
    """

    failures: int
    n: int
    confidence: float
    at_most: float

    def __repr__(self) -> str:
        return (
            f"Certificate(at most {self.at_most:.1%} with {self.confidence:.0%} confidence: "
            f"{self.failures} of {self.n} failed)"
        )


def certify(failures: int, n: int, *, confidence: float = 0.95) -> Certificate:
    """Return what a rate is at most (Clopper & Pearson 1934, one-sided).

    Args:
        failures: how many of n independent draws failed: prompts of different groups, used for nothing else.
        n: how many there were. `n_for` says how many a limit takes.

    Raises:
        UserError: the numbers are no counts, or the confidence is not between 0 and 1.

    >>> import refusal
    >>> refusal.certify(failures=0, n=60)
    Certificate(at most 4.9% with 95% confidence: 0 of 60 failed)
    """
    if not all(isinstance(count, int | np.integer) for count in (failures, n)) or not 0 <= failures <= n or n < 1:
        raise UserError(f"failures are 0 to n, and n is at least 1; got {failures} of {n}")
    if not 0 < confidence < 1:
        raise UserError(f"a confidence is between 0 and 1; got {confidence:g}")
    return Certificate(int(failures), int(n), confidence, upper_limit(failures, n, confidence))


def n_for(limit: float, *, confidence: float = 0.95) -> int:
    """Return how many independent draws certify a limit if none fails: n >= ln(1 - confidence) / ln(1 - limit).

    Raises:
        UserError: the limit or the confidence is not between 0 and 1.

    >>> import refusal
    >>> refusal.n_for(0.05)
    59
    """
    if not (0 < limit < 1 and 0 < confidence < 1):
        raise UserError(f"limit and confidence are between 0 and 1; got {limit:g} and {confidence:g}")
    return n_needed(limit, confidence)
