"""Parts of the probe_grid benchmark that need a process of their own: peak memory, and one thread each."""

from __future__ import annotations

import ctypes
import json
import sys
import time

import numpy as np

from benchmarks.probe_grid import (
    FULL,
    KINDS,
    LARGE,
    LARGE_QUICK,
    QUICK,
    Implementation,
    Plan,
    Source,
    loop,
    ours,
    sklearn_fit,
    timed,
)
from benchmarks.process.child import peak_beyond_mb

ROUNDS = 3  # of one thread each; ours and the loop in turns, and the median ratio of all rounds and loci


def memory(size: str) -> list[tuple[float, float]]:
    """Fit one locus of the grid and of the large grid; return seconds, and MB beyond the locus."""
    plans = (FULL, LARGE) if size == "full" else (QUICK, LARGE_QUICK)
    return [_seconds_and_peak(plan) for plan in plans]


def one_thread(size: str) -> dict[str, float]:
    """Return median ratios to the loop over scikit-learn for both kinds of activations, and seconds of a large locus.

    In processor time, which other processes hardly affect; on an idle core it is the time by the clock.
    """
    plan, large = (FULL, LARGE) if size == "full" else (QUICK, LARGE_QUICK)
    figures: dict[str, float] = {}
    for kind in KINDS:
        source = Source(kind, plan)
        loci = [source.locus(*locus) for locus in plan.sampled for _ in range(ROUNDS)]
        ratios = [_processor_seconds(loop(sklearn_fit), X, plan) / _processor_seconds(ours, X, plan) for X in loci]
        figures[f"ratio_{kind}_one_thread"] = float(np.median(ratios))
    X = Source("activation_like", large).locus(0, 0)
    return figures | {"large_seconds_one_thread": _processor_seconds(ours, X, large)}


def _processor_seconds(fit: Implementation, X: np.ndarray, plan: Plan) -> float:
    fit(X[: len(X) // 4], plan.y[: len(X) // 4], plan.train[:1, : len(X) // 4], plan.Cs[:1])  # a warm-up
    train, before = plan.train, time.process_time()
    fit(X, plan.y, train, plan.Cs)
    return time.process_time() - before


def _seconds_and_peak(plan: Plan) -> tuple[float, float]:
    X, seconds = Source("activation_like", plan).locus(0, 0), []
    plan.train  # the folds, made once outside the timing  # noqa: B018

    def work() -> None:
        seconds.append(timed(ours, X, plan)[0])

    ctypes.CDLL(None).malloc_trim(0)  # else free heap memory would hide the memory of the fit
    peak = peak_beyond_mb(work)
    return seconds[0], peak


if __name__ == "__main__":
    part, size = sys.argv[1:]
    print(json.dumps({"memory": memory, "one_thread": one_thread}[part](size)))
