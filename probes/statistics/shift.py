"""Has a stream of values changed from a reference? Smoothed online conformal p-values, and an e-detector over them.

**p-values.** A value's p is its rank among the reference and the stream before it, ties and itself broken at random.
While all of these are exchangeable the p-values are independent and uniform, however small the reference (Vovk,
Nouretdinov & Gammerman 2003, ICML). Against a fixed reference they would share its error, and a long stream find it.

**E-detector.** Each bet is a density of p, so its mean is 1 without a shift. The detector of Shiryaev and Roberts is
E_t = bet(p_t) (1 + E_{t-1}): E_t - t is a martingale, so the mean of a run up to E >= A is at least A (Shin, Ramdas &
Rinaldo 2022, arXiv 2203.03532). Means of such detectors are one, too. That is a promise on the run's length, not on
ever alarming, and after an alarm it begins again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from scipy.special import beta

RUN_LENGTH = 10_000  # requests before a false alarm, in the mean at least
BETS = (
    (0.3, 1.0),
    (1.0, 0.3),
    (0.7, 1.0),
    (1.0, 0.7),
    (2.0, 1.0),
    (1.0, 2.0),
    (0.5, 0.5),
    (2.0, 2.0),
)  # beta densities
_A, _B = np.array(BETS).T
SMALLEST = 1e-12  # p to bet on
MOST = 1_000_000  # values that are kept


class ShiftDetector:
    """Compares a stream with a reference, value by value; `evidence` reaches `run_length` where it alarms."""

    def __init__(self, reference: Iterable[float], run_length: float = RUN_LENGTH, seed: int = 0) -> None:
        self._reference, self._rng = array("d", sorted(reference)), np.random.default_rng(seed)
        self._seen, self._run_length, self._detectors = self._reference[:], run_length, np.zeros(len(BETS))
        self.n = 0  # values of the stream

    @property
    def evidence(self) -> float:
        """The detector since the last alarm; without a shift its mean is the number of values since then."""
        return float(self._detectors.mean())

    def see(self, value: float) -> bool:
        """Add the stream's next value; return whether it alarms. ValueError: it is no number."""
        if not np.isfinite(value):
            raise ValueError(f"a read is a number, got {value}")
        above = len(self._seen) - bisect_right(self._seen, value)
        equal = len(self._seen) - above - bisect_left(self._seen, value)
        p = (above + self._rng.uniform() * (equal + 1)) / (len(self._seen) + 1)
        insort(self._seen, float(value))
        self.n += 1
        if len(self._seen) >= len(self._reference) + MOST:  # begins again, as after a restart
            self._seen = self._reference[:]
        self._detectors = bets_on(p) * (1 + self._detectors)
        if self.evidence < self._run_length:
            return False
        self._detectors = np.zeros(len(BETS))
        return True


def bets_on(p: float) -> Float[np.ndarray, " bets"]:
    """Return the density of each of `BETS` at p, whose means over uniform p are 1."""
    inside = min(max(p, SMALLEST), 1 - SMALLEST)
    densities: np.ndarray = inside ** (_A - 1) * (1 - inside) ** (_B - 1) / beta(_A, _B)
    return densities
