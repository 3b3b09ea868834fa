"""How often each permutation null rejects at 5 % where labels depend on the group and not on the stream.

Labels have an intra-class correlation of 0, 0.3 or 1 within groups of 1, 2, 4 or 8 prompts; half of the stream's
variance is shared within groups. Each figure is P(p <= 0.05). `prompt by prompt` is the control: the same test with
labels permuted sample by sample, as this project did up to version 0.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import numpy as np

from benchmarks.simulations.clustered import SETTINGS, Setting, clustered_labels, clustered_stream, groups_of
from benchmarks.table import main
from experiments.probing.selection import Candidate, LocusSelection, Screen, confirmed, screening
from experiments.probing.write_directions import WriteFitter
from experiments.run.behaviour import WriteSamples
from probes.contrast import Contrast
from probes.direction import Direction
from probes.geometry.cosines import compare_directions
from probes.geometry.fitted_direction import fit_with_null
from probes.geometry.locus_geometry import cross_erasure, transfer
from probes.grid.nulls import null_auroc
from probes.means import difference_in_means
from probes.statistics.factorial import CONTRASTS, partial_eta
from probes.statistics.permutation import label_permutation_p, permutation_p, permuted_p

N_SIMULATIONS = 5000
D, N = 8, 39
LOCI = 6  # of write directions, where estimates choose which are measured
DRAWS = 19  # of null directions whose locus is chosen; the least p is then 0.05
CONTROLS = 0.2  # share of the simulations of write directions that are repeated with labels permuted one by one
Simulation = Callable[[Setting, np.random.Generator], dict[str, float]]


def measure(quick: bool) -> dict[str, float]:
    """Print the table and return the figures."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the worker processes
    n = 20 if quick else N_SIMULATIONS
    settings = SETTINGS[:2] if quick else SETTINGS
    parts = [(setting, seed, n // 10 if not quick else n) for setting in settings for seed in range(1 if quick else 10)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(simulate, *zip(*parts, strict=True)))
    figures: dict[str, float] = {}
    for setting in settings:
        mine = [ps for (of, *_), ps in zip(parts, found, strict=True) if of == setting]
        for name in mine[0]:
            p = np.concatenate([ps[name] for ps in mine])
            figures[f"{name}; {setting.size} a group; icc {setting.icc:g}"] = float(np.mean(p[~np.isnan(p)] <= 0.05))
    _print(figures, settings)
    return figures


def simulate(setting: Setting, seed: int, n: int) -> dict[str, np.ndarray]:
    """Return the p-values of every null in n simulations of one setting."""
    rng = np.random.default_rng([seed, setting.size, int(100 * setting.icc)])
    drawn = [{name: p for simulation in SIMULATIONS for name, p in simulation(setting, rng).items()} for _ in range(n)]
    return {name: np.array([ps[name] for ps in drawn]) for name in drawn[0]}


def _print(figures: dict[str, float], settings: tuple[Setting, ...]) -> None:
    names = list(dict.fromkeys(key.split("; ")[0] for key in figures))
    print(f"{'P(p <= 0.05)':<34}" + "".join(f"{s.size}/{s.icc:g}".rjust(8) for s in settings))
    for name in names:
        row = (figures[f"{name}; {s.size} a group; icc {s.icc:g}"] for s in settings)
        print(f"{name:<34}" + "".join(f"{value:8.3f}" for value in row))


# -- write directions --------------------------------------------------------------------------------------------------


class ModelFreeSelection(LocusSelection):
    """The choice of the locus with linear measurements of a stream in place of a model's."""

    def __init__(self, streams: list[np.ndarray], readouts: np.ndarray, decliners: np.ndarray, benign: np.ndarray):
        self._streams, self._readouts, self._max_kl = streams, readouts, 0.6
        self._rows, self.likely = (decliners, benign), 0.0
        self._answers = SimpleNamespace(divergences=self._nats)  # type: ignore[assignment]

    def effect(self, direction: Direction, rows: np.ndarray) -> float:
        """Return the mean fall of the readout when the direction is ablated."""
        x, w = self._streams[direction.locus.layer][rows], self._readouts[direction.locus.layer]
        return float((w @ direction.vector) * (x @ direction.vector - direction.mean_negative).mean())

    def _bypass(self, directions, advance=None):  # type: ignore[no-untyped-def]
        rows = self._rows[0]
        return np.stack([np.full(len(rows), -self.effect(d, rows)) for d in directions])

    def _induce(self, directions, advance=None):  # type: ignore[no-untyped-def]
        gaps = [(self._readouts[d.locus.layer] @ d.vector) * (d.mean_positive - d.mean_negative) for d in directions]
        return np.array(gaps) - 0.1

    def _ablation(self, direction):  # type: ignore[no-untyped-def]
        return [direction]

    def _nats(self, trials, advance=None):  # type: ignore[no-untyped-def]
        nats = [abs(float(self._readouts[d.locus.layer] @ d.vector)) for (d,) in trials]
        return np.array(nats)[:, None, None], np.ones((1, 1), dtype=bool)


class NoisyScreen(Screen):
    """Estimates of a stream's linear effects with errors of their own."""

    def __init__(self, streams, readouts, decliners, benign, noise):  # type: ignore[no-untyped-def]
        object.__setattr__(self, "model", ModelFreeSelection(streams, readouts + noise, decliners, benign))

    def estimate(self, direction: Direction) -> Candidate:
        """Return the candidate with its bypass and induce as estimated."""
        (found,) = self.model._effects([direction])  # type: ignore[attr-defined]
        return found


def write_direction(setting: Setting, rng: np.random.Generator) -> dict[str, float]:
    """Choose a write direction among loci and compare its effect with those of permuted labels."""
    groups, streams = groups_of(setting), [clustered_stream(setting, D, rng).astype(np.float32) for _ in range(2)]
    other = [clustered_stream(setting, D, rng) for _ in range(2)]  # validation and test prompts
    strata = np.where((groups + np.arange(len(groups))) % 3 == 0, "a", "b").astype(object)
    samples = WriteSamples(np.arange(len(groups)), clustered_labels(setting, rng), strata, groups, True)
    fitter = WriteFitter(
        lambda layer, position: streams[layer], "resid_post", [(i, "post_last") for i in range(2)], "normative", samples
    )
    selection = ModelFreeSelection(other, rng.standard_normal((2, D)) / 3, np.arange(12), np.arange(12, 24))

    def effect(labels: np.ndarray) -> float:
        return selection.effect(selection.choose_each([fitter.fit(labels)])[0][0].direction, np.arange(24, 48))

    observed = effect(samples.declined)
    null = np.array([effect(samples.permuted(rng)) for _ in range(DRAWS)])
    screened = _screened_p(fitter.samples, setting, rng) if rng.random() < CONTROLS else np.nan
    single = WriteSamples(samples.rows, samples.declined, strata, np.arange(len(groups)), True)
    with_control = rng.random() < CONTROLS
    naive = np.array([effect(single.permuted(rng)) for _ in range(DRAWS * with_control)])
    return {
        "write direction": float(permutation_p(null, observed, labellings=samples.n_labellings)),
        "write direction (prompt by prompt)": float(permutation_p(naive, observed)) if with_control else np.nan,
        "write direction (first-order effects)": screened,
    }


def _screened_p(samples: WriteSamples, setting: Setting, rng: np.random.Generator) -> float:
    """Return p where noisy estimates choose which of six loci are measured, if they agree with exact effects."""
    streams = [clustered_stream(setting, D, rng).astype(np.float32) for _ in range(LOCI)]
    other = [clustered_stream(setting, D, rng) for _ in range(LOCI)]
    loci = [(i, "post_last") for i in range(LOCI)]
    fitter = WriteFitter(lambda layer, position: streams[layer], "resid_post", loci, "normative", samples)
    given = (other, rng.standard_normal((LOCI, D)) / 3, np.arange(12), np.arange(12, 24))
    selection, screen = ModelFreeSelection(*given), NoisyScreen(*given, noise=rng.standard_normal((LOCI, D)) / 6)
    record = screening(screen, selection.candidates(fitter.fit()))
    record = confirmed(record, screening(screen, selection.candidates(fitter.fit(samples.permuted(rng)))))
    draws = [fitter.fit(), *(fitter.fit(samples.permuted(rng)) for _ in range(DRAWS))]
    chosen = selection.choose_each(draws, screen if record.used else None)
    observed, *null = (selection.effect(candidate.direction, np.arange(24, 48)) for candidate, _ in chosen)
    return float(permutation_p(np.array(null), observed, labellings=samples.n_labellings))


# -- read directions ---------------------------------------------------------------------------------------------------


def read_direction(setting: Setting, rng: np.random.Generator) -> dict[str, float]:
    """Test labels without information: by fits on permuted labels, and by permuted test labels."""
    groups, seed = groups_of(setting), int(rng.integers(2**31))
    X, Z = clustered_stream(setting, D, rng), clustered_stream(setting, D, rng)
    y, z = clustered_labels(setting, rng), clustered_labels(setting, rng)
    found = null_auroc(X, y, Z, z, groups=groups, test_groups=groups, n=N, seed=seed)
    score = Z @ difference_in_means(X, y)
    return {
        "AUROC, training labels": found.p_fitted,
        "AUROC, test labels": found.p_tested,
        "AUROC (prompt by prompt)": label_permutation_p(z, score, np.arange(len(z)), n=N, seed=seed),
    }


def geometry(setting: Setting, rng: np.random.Generator) -> dict[str, float]:
    """Compare a contrast without information with a real one: cosine, transfer, erasure."""
    groups = groups_of(setting)
    n = len(groups)
    X = np.concatenate([clustered_stream(setting, D, rng) for _ in range(4)])
    names = np.concatenate([groups + k * n for k in range(4)])
    y = np.concatenate([clustered_labels(setting, rng) for _ in range(4)])
    X[2 * n :, 0] += 2 * y[2 * n :]  # the second contrast is real
    seed = int(rng.integers(2**31))
    noise, real = (
        fit_with_null(X, Contrast(name, rows, y[rows], names[rows], np.repeat(["train", "test"], n)), n=N, seed=seed)
        for name, rows in (("noise", np.arange(2 * n)), ("real", np.arange(2 * n, 4 * n)))
    )
    return {
        "cosine with a real direction": compare_directions(noise, real).p_a,
        "transfer, training labels": transfer(noise, real).p_fitted,
        "transfer, test labels": transfer(real, noise).p_tested,
        "erasure": cross_erasure(noise, real).p,
    }


# -- rates and factorial effects ---------------------------------------------------------------------------------------


def difference_of_rates(setting: Setting, rng: np.random.Generator) -> dict[str, float]:
    """Compare rates with a property and without it; both depend on the group, which spans three categories."""
    groups = groups_of(setting)
    category = np.arange(len(groups)) % min(3, setting.size)
    has, outcome = clustered_labels(setting, rng), rng.standard_normal(groups.max() + 1)[groups]
    kept = np.isin(category, [c for c in np.unique(category) if 0 < has[category == c].mean() < 1])
    given = has[kept], outcome[kept], groups[kept], category[kept]
    return {
        "difference of means": permuted_p(*given, N, rng),
        "difference (prompt by prompt)": permuted_p(given[0], given[1], np.arange(int(kept.sum())), given[3], N, rng),
    }


def factorial(setting: Setting, rng: np.random.Generator) -> dict[str, float]:
    """Test a main effect over quadruples that share an offset; one quadruple a group."""
    cells = rng.standard_normal((24, 1, 1)) + rng.standard_normal((24, 4, 1))
    return {"partial eta squared": float(partial_eta(cells, CONTRASTS["first"], seed=int(rng.integers(2**31))).p[0])}


SIMULATIONS: tuple[Simulation, ...] = (write_direction, read_direction, geometry, difference_of_rates, factorial)

if __name__ == "__main__":
    main("simulations.nulls", measure)
