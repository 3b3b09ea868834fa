"""The screened permutation null against the exhaustive one: the same permuted labels, both choices, p values of both.

    python -m benchmarks.simulations.screened_null --run runs/real

The run has its responses and its directions (`refusal probe`). The screened choice measures the best candidates by
first-order effects only (`experiments.probing.selection`); the exhaustive one measures all. Both choose for the given
labels and for each permuted labelling, so the p values differ by what screening changes alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.table import main
from experiments.dissociation.applicability import find_setup
from experiments.dissociation.measure import onset_effects
from experiments.dissociation.onset_null import NullDirectionSampler, OnsetEffects
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.config import load_config
from extract.progress import Reporter
from probes.statistics.permutation import permutation_p
from probes.statistics.seeds import named_rng
from steering.ablation import ablation


def measure(quick: bool, run: str, draws: str) -> dict[str, float]:
    """Return the p values of both nulls for each effect that the run screens, and the time of a draw."""
    directory = Path(run)
    loaded = LoadedRun(load_config(directory / "config.yaml"), directory, Reporter(quiet=True))
    setup, figures = find_setup(loaded), dict[str, float]()
    chosen, whole = defaultdict[str, float](float), defaultdict[str, float](float)
    effects = onset_effects(loaded, setup)
    if effects is None:
        raise SystemExit(f"{directory}: nothing to test, {dict(setup.absent)}")
    for kind, direction in setup.directions.items():
        if not direction.provenance.get("screened"):
            print(f"{kind}: first-order effects do not agree with exact ones, so the run's own choice is exhaustive")
            continue
        found = {
            name: _null(loaded, kind, effects, name == "screened", 3 if quick else int(draws))
            for name in ("screened", "exhaustive")
        }
        figures |= _compared(kind, found)
        for name, (_, choosing, effect) in found.items():
            chosen[name], whole[name] = chosen[name] + choosing, whole[name] + choosing + effect
    if figures:
        figures |= {
            "choosing, times faster": chosen["exhaustive"] / chosen["screened"],
            "whole null, times faster": whole["exhaustive"] / whole["screened"],
        }
    return figures


def _null(
    loaded: LoadedRun, kind: Kind, effects: OnsetEffects, screened: bool, draws: int
) -> tuple[dict[Kind, np.ndarray], float, float]:
    """Return the onset effects on each behaviour, of the given labels and of each draw, and the seconds of a draw."""
    rng = named_rng(loaded.config.seed, "screened null", kind)
    sampler = NullDirectionSampler(loaded, kind, context_onsets(loaded), screened=screened)
    given, started = sampler.of_labellings(sampler.samples.declined[None]), time.perf_counter()
    drawn = sampler.draw(rng, draws)
    choosing, started = time.perf_counter() - started, time.perf_counter()
    falls = effects.falls([ablation(each, loaded.config.dissociate.variant) for each in [*given, *drawn]])
    return falls, choosing / draws, (time.perf_counter() - started) / (draws + 1)


def _compared(kind: Kind, found: Mapping[str, tuple[dict[Kind, np.ndarray], float, float]]) -> dict[str, float]:
    (screened, fast, _), (exhaustive, slow, _) = found["screened"], found["exhaustive"]
    figures = {f"{kind}: seconds to choose, screened": fast, f"{kind}: choosing, times faster": slow / fast}
    for behaviour, falls in exhaustive.items():
        other = screened[behaviour]
        p = {
            name: float(permutation_p(values[1:], values[0]))
            for name, values in (("screened", other), ("exhaustive", falls))
        }
        name = f"{kind} on {behaviour}"
        figures |= {f"{name}: p, {rule}": value for rule, value in p.items()}
        figures |= {
            f"{name}: |Δp|": abs(p["screened"] - p["exhaustive"]),
            f"{name}: same choice": float(np.isclose(other, falls, atol=1e-3).mean()),
        }
    return figures


if __name__ == "__main__":
    main("simulations.screened_null", measure, run=("runs/real",), draws=("199",))
