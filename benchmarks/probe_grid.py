"""Time and accuracy of a grid of logistic probes, compared with loops over scikit-learn, probelab and lmprobe.

28 layers x 4 positions, 600 prompts in 300 minimal pairs, d_model 1536, float32. A locus has 30 balanced logistic fits
(5 folds that keep pairs whole x 6 values of C), standardised on training samples, with the AUROC of each held-out fold.
Our grid fits all 112 loci. The scikit-learn loop, at its default tolerance, is timed at three loci (early, middle and
late) and scaled to 112; probelab and lmprobe, if installed, at the middle one. Activations are made one locus at a
time, outside the timing. All use their default number of threads. Thread pools spin for a while after work and slow
the next timing, so a pause of half a second and a warm-up fit precede each timing.

There are two kinds of synthetic activations: `activation_like` (decaying spectrum, offsets, unequal scales, a few
massive dimensions) and `isotropic`, our least favourable case, as L-BFGS needs few steps there. `ratio_vs_…` is for the
first, which resembles real data; `ratio_isotropic` is for the second. `…_same_loci` compares only the sampled loci, as
a check of the scaling. Differences are the largest over folds, Cs and sampled loci, from converged scikit-learn
(float64, tol 1e-10); that of a decision function is relative to its root mean square over the held-out fold. The
benchmark also reports, in processes of their own, one locus of a large grid (10,000 prompts x
4096): seconds, memory, and the hours for 32 layers x 8 positions; and the ratios with one thread each, at the sampled
loci, in processor time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal
from unittest.mock import patch

import numpy as np
import torch
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.memory import peak_beyond_mb
from benchmarks.table import main
from extract.background import call_in_subprocess
from probes.grid.logistic import CS
from probes.grid.solver import fit_logistic_batch
from probes.statistics.metrics import aurocs

PLANNED_LOCI = 32 * 8  # loci of the large grid
ROUNDS = 3  # of one thread each; ours and the loop in turns, and the median ratio of all rounds and loci
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Kind = Literal["activation_like", "isotropic"]
KINDS: tuple[Kind, ...] = ("activation_like", "isotropic")
HeldOutScores = list[np.ndarray]  # decision functions of each fold's held-out samples, (Cs, n_test)
Result = tuple[np.ndarray, HeldOutScores]  # AUROC of each held-out fold, (folds, Cs), and the scores
Implementation = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[float]], Result]  # fits one locus


@dataclass(frozen=True)
class Plan:
    """Size of a grid and the loci to compare."""

    n_layers: int
    n_positions: int
    n_pairs: int
    d_model: int
    sampled: tuple[tuple[int, int], ...]  # loci (layer, position) for scikit-learn; other tools run at the middle one
    Cs: tuple[float, ...] = CS
    pause: float = 0.5  # seconds before each timing

    @property
    def n_loci(self) -> int:
        return self.n_layers * self.n_positions

    @cached_property
    def y(self) -> np.ndarray:
        return np.tile([True, False], self.n_pairs)

    @cached_property
    def train(self) -> np.ndarray:
        """The training sets of five folds, (5, n_samples)."""
        pairs = np.arange(self.n_pairs).repeat(2)
        splits = StratifiedGroupKFold(5, shuffle=True, random_state=0).split(pairs, self.y, pairs)
        return np.array([np.isin(np.arange(len(pairs)), inside) for inside, _ in splits])


FULL = Plan(28, 4, 300, 1536, ((0, 0), (13, 2), (27, 3))), Plan(1, 1, 5000, 4096, ())  # and the large grid
QUICK = Plan(2, 1, 60, 96, ((1, 0),), CS[::2], pause=0.05), Plan(1, 1, 200, 128, ())


class Source:
    """Makes the activations of a grid, one locus at a time."""

    def __init__(self, kind: Kind, plan: Plan) -> None:
        self._kind, self._plan = kind, plan
        if kind == "activation_like":
            d, normal = plan.d_model, _normal(0)
            self._components = torch.linalg.qr(normal(d, d)).Q * (1 + torch.arange(d)[:, None]) ** -0.8
            self._scale = (0.7 * normal(d)).exp()
            self._scale[normal(d).topk(4).indices] *= 100
            self._offset = 3 * normal(d) * self._scale

    def locus(self, layer: int, position: int) -> np.ndarray:
        """Return float32 (n_samples, d_model): a planted direction, stronger in late layers, plus noise per pair."""
        plan, depth = self._plan, layer / max(1, self._plan.n_layers - 1)
        n, d, normal = len(plan.y), plan.d_model, _normal(1 + layer * plan.n_positions + position)
        Z = (normal(n // 2, d).repeat_interleave(2, dim=0) + normal(n, d)) / 2**0.5
        direction = torch.nn.functional.normalize(normal(d), dim=0)
        sign = torch.as_tensor(plan.y).float()[:, None] - 0.5
        if self._kind == "isotropic":
            return (Z + (2 + 4.5 * depth) * sign * direction).numpy()
        X = Z @ self._components + 0.02 * normal(n, d) + (0.05 + 0.25 * depth) * sign * direction
        return (X * self._scale + self._offset).numpy()


def _normal(seed: int) -> Callable[..., torch.Tensor]:
    return partial(torch.randn, generator=torch.Generator().manual_seed(seed))


# -- implementations that fit the 30 probes of a locus -----------------------------------------------------------------


def ours(X: np.ndarray, y: np.ndarray, train: np.ndarray, Cs: Sequence[float]) -> tuple[np.ndarray, HeldOutScores]:
    """Fit all probes of a locus in one batch."""
    scores = fit_logistic_batch(X, train, np.tile(y, (len(train), 1)), Cs).scores
    held = [of_fold[:, ~inside] for of_fold, inside in zip(scores, train, strict=True)]
    return np.array([aurocs(f, y[~inside]) for f, inside in zip(held, train, strict=True)]), held


def loop(one: Callable[[np.ndarray, np.ndarray, float, np.ndarray], np.ndarray]) -> Implementation:
    """Return an implementation that fits one probe at a time; `one(X, y, C, X_test)` returns test scores."""

    def fit(X: np.ndarray, y: np.ndarray, train: np.ndarray, Cs: Sequence[float]) -> tuple[np.ndarray, HeldOutScores]:
        held = [np.array([one(X[inside], y[inside], C, X[~inside]) for C in Cs]) for inside in train]
        reached = [[roc_auc_score(y[~inside], f) for f in fs] for fs, inside in zip(held, train, strict=True)]
        return np.array(reached), held

    return fit


def sklearn_fit(X: np.ndarray, y: np.ndarray, C: float, X_test: np.ndarray, **settings: float) -> np.ndarray:
    """Fit scikit-learn's probe, by default at its default tolerance, and return test scores."""
    logistic = LogisticRegression(C=C, class_weight="balanced", **({"max_iter": 1000} | settings))
    return make_pipeline(StandardScaler(), logistic).fit(X, y).decision_function(X_test)


def _converged(X: np.ndarray, y: np.ndarray, C: float, X_test: np.ndarray) -> np.ndarray:
    return sklearn_fit(X.astype(np.float64), y, C, X_test.astype(np.float64), tol=1e-10, max_iter=100_000)


def _probelab() -> Implementation:
    """Return probelab's fit: the same objective with torch's L-BFGS in float32, unweighted (our folds are balanced)."""
    import probelab

    def one(X: np.ndarray, y: np.ndarray, C: float, X_test: np.ndarray) -> np.ndarray:
        inside, outside = (probelab.Activations(torch.from_numpy(part), dims="bh") for part in (X, X_test))
        probe = probelab.probes.Logistic(C=C, seed=0).fit(inside, torch.from_numpy(y))
        return probe.predict_logits(outside).detach().numpy()

    return loop(one)


def _lmprobe() -> Implementation:
    """Return lmprobe's fit: scikit-learn at its default tolerance, with lmprobe's own standardisation."""
    import lmprobe

    def one(X: np.ndarray, y: np.ndarray, C: float, X_test: np.ndarray) -> np.ndarray:
        probe = lmprobe.Probe(classifier_kwargs={"C": C, "class_weight": "balanced"}).fit_from_activations(X, y)
        return logit(np.clip(probe.predict_proba_from_activations(X_test)[:, 1], 1e-15, 1 - 1e-15))

    return loop(one)


def _others() -> dict[str, Implementation]:
    found = {}
    for name, build in (("probelab", _probelab), ("lmprobe", _lmprobe)):
        try:
            found[name] = build()
        except ImportError as error:
            print(f"{name} is left out, because it cannot be imported: {error}")
    return found


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(quick: bool) -> dict[str, float]:
    """Time all implementations on both kinds of activations, print tables, and return the figures."""
    (plan, large), others = QUICK if quick else FULL, _others()
    both = [_measure_kind(kind, plan, others) for kind in KINDS]
    names = ("sklearn_loop", "sklearn_converged", *others)
    figures = {f"ratio_vs_{name}": both[0][f"ratio_vs_{name}"] for name in names}
    figures |= {f"ratio_{kind}": of["ratio_vs_sklearn_loop"] for kind, of in zip(KINDS, both, strict=True)}
    figures |= {f"ratio_{kind}_same_loci": of["same_loci"] for kind, of in zip(KINDS, both, strict=True)}
    figures |= {f"seconds_{kind}": of["seconds"] for kind, of in zip(KINDS, both, strict=True)}
    figures |= {key: max(of[key] for of in both) for key in both[0] if key.endswith("_difference")}
    (_, peak), (seconds, large_peak) = call_in_subprocess(memory, quick)
    with patch.dict(os.environ, dict.fromkeys(THREADS, "1")):
        figures |= call_in_subprocess(one_thread, quick)
    hours = seconds * PLANNED_LOCI / 3600
    print(f"\na locus of {len(large.y)} prompts x {large.d_model}: {seconds:.1f} s; {PLANNED_LOCI}: {hours:.2g} h\n")
    return figures | {
        "peak_mb_beyond_locus": peak,
        "large_seconds_per_locus": seconds,
        "large_peak_mb_beyond_locus": large_peak,
        "large_hours_scaled": hours,
    }


def _measure_kind(kind: Kind, plan: Plan, others: dict[str, Implementation]) -> dict[str, float]:
    source = Source(kind, plan)
    middle = plan.sampled[len(plan.sampled) // 2]
    seconds: dict[str, list[float]] = defaultdict(list)
    figures: dict[str, float] = {}
    ours_there = 0.0
    shape = f"{len(plan.y)} prompts x {plan.d_model}, {plan.n_loci} loci of {5 * len(plan.Cs)} fits"
    print(f"\n{kind}: {shape}")
    for locus in itertools.product(range(plan.n_layers), range(plan.n_positions)):
        X = source.locus(*locus)
        took, found = timed(ours, X, plan)
        seconds["ours"].append(took)
        if locus not in plan.sampled:
            continue
        tools = {"sklearn_converged": loop(_converged), "sklearn_loop": loop(sklearn_fit)}
        ours_there += took
        results, times = {"max": found}, {"ours": took}
        for name, fit in (tools | (others if locus == middle else {})).items():
            times[name], results[name] = timed(fit, X, plan)
            seconds[name].append(times[name])
        reference = results.pop("sklearn_converged")
        for name, result in results.items():
            for what, value in _differences(result, reference).items():
                key = f"{name}_{what}_difference"
                figures[key] = max(value, figures.get(key, 0.0))
        _print_locus(locus, reference[0], times)
    total = sum(seconds.pop("ours"))
    ratios = {f"ratio_vs_{name}": float(np.mean(took)) * plan.n_loci / total for name, took in seconds.items()}
    print(
        f"all {plan.n_loci}: ours {total:.1f} s; scaled from {len(plan.sampled)} (others from the middle one): "
        + ", ".join(f"{name} {np.mean(took) * plan.n_loci:.0f} s" for name, took in seconds.items())
    )
    return figures | ratios | {"seconds": total, "same_loci": sum(seconds["sklearn_loop"]) / ours_there}


def _print_locus(locus: tuple[int, int], auroc: np.ndarray, seconds: dict[str, float]) -> None:
    by_C = auroc.mean(axis=0)
    times = ", ".join(f"{name} {took:.3f} s" for name, took in seconds.items())
    print(f"  layer {locus[0]}, position {locus[1]}: AUROC {by_C.min():.3f} to {by_C.max():.3f} over C; {times}")


def timed(fit: Implementation, X: np.ndarray, plan: Plan) -> tuple[float, Result]:
    """Return the seconds of a fit of one locus, after a pause and a warm-up, and its result."""
    time.sleep(plan.pause)
    fit(X, plan.y, plan.train[:1], plan.Cs[:1])
    started = time.perf_counter()
    found = fit(X, plan.y, plan.train, plan.Cs)
    return time.perf_counter() - started, found


def _differences(found: Result, reference: Result) -> dict[str, float]:
    """Return the largest difference of AUROCs, and of held-out decision functions over their root mean square."""
    pairs = zip(found[1], reference[1], strict=True)
    relative = [np.abs(f - g).max(axis=1) / np.sqrt((g**2).mean(axis=1)) for f, g in pairs]
    return {"auroc": float(np.abs(found[0] - reference[0]).max()), "decision": float(np.max(relative))}


# -- in processes of their own -----------------------------------------------------------------------------------------


def memory(quick: bool) -> list[tuple[float, float]]:
    """Fit one locus of the grid and of the large grid; return seconds, and MB beyond the locus."""
    return [_seconds_and_peak(plan) for plan in (QUICK if quick else FULL)]


def one_thread(quick: bool) -> dict[str, float]:
    """Return median ratios to the loop over scikit-learn for both kinds of activations, and seconds of a large locus.

    In processor time, which other processes hardly affect; on an idle core it is the time by the clock.
    """
    plan, large = QUICK if quick else FULL
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
    main("probe_grid", measure)
