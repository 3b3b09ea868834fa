"""Quick versions of the benchmarks of speed and memory, against the last recorded run (`make bench`).

Each benchmark runs several times, in turns. Times are divided by those of a reference workload that runs just before
and after, so that a slow hour of the machine is no change. A figure got worse if its median moved the wrong way by more
than both runs scatter together, and by more than `LEAST`. Quick versions find a step, not a drift; the figures of
RESULTS.md come from the whole ones.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.table import environment
from extract.atomic_write import write_text
from extract.shipped import ROOT

RECORDED = Path(__file__).with_name("recorded.json")
LEAST = 0.05  # a smaller change is never named
TIME, RATE, LESS, MORE = "time", "rate", "less", "more"  # the first two depend on the machine's speed
FIGURES: dict[str, dict[str, str]] = {
    "extraction": {
        "tokens_per_s": RATE,
        "ratio_vs_bare_forward": MORE,
        "ratio_vs_hidden_states": MORE,
        "fraction_of_matmul": MORE,
        "ratio_vs_bare_forward_shared_prompt": MORE,
        "memory_few_mb": LESS,
        "memory_many_mb": LESS,
    },
    "probe_grid": {
        "ratio_activation_like": MORE,
        "ratio_isotropic": MORE,
        "ratio_activation_like_one_thread": MORE,
        "ratio_isotropic_one_thread": MORE,
        "seconds_activation_like": TIME,
        "seconds_isotropic": TIME,
        "large_seconds_per_locus": TIME,
        "peak_mb_beyond_locus": LESS,
    },
    "steering": {"overhead_batch1_point": LESS, "overhead_batch8_point": LESS, "ms_per_token_batch8": TIME},
    "page": {"megabytes": LESS, "seconds_to_use": TIME, "seconds_to_all": TIME},
    "store": {"ms_per_locus_128": TIME, "ms_per_locus_896": TIME},
    "startup": {"seconds_help": TIME, "seconds_score": TIME, "seconds_rerun": TIME, "ratio_generate_vs_imports": LESS},
    "judge": {"completions_per_s": RATE},
}
Runs = Mapping[str, Sequence[float]]  # of each figure, named benchmark.figure


@dataclass(frozen=True)
class Change:
    """A figure of this run against the recorded one; `ratio` above 1 is better, whichever way the figure counts."""

    name: str
    now: float
    then: float
    ratio: float
    noise: float  # the factor by which the two runs scatter together

    @property
    def worse(self) -> bool:
        """Whether it got worse by more than the noise."""
        return self.ratio < 1 / max(self.noise, 1 + LEAST)


def compare(now: Runs, then: Runs) -> list[Change]:
    """Compare the figures that both runs have, the worst first."""
    changes = []
    for name in sorted(set(now) & set(then)):
        benchmark, figure = name.split(".")
        better = -1 if FIGURES[benchmark][figure] in (TIME, LESS) else 1
        middle_now, middle_then = median(now[name]), median(then[name])
        ratio = (middle_now / middle_then) ** better
        changes.append(Change(name, middle_now, middle_then, ratio, _scatter(now[name]) * _scatter(then[name])))
    return sorted(changes, key=lambda change: change.ratio)


def _scatter(values: Sequence[float]) -> float:
    """Return the largest factor between a value and the median."""
    middle = math.log(median(values))
    return math.exp(max(abs(math.log(value) - middle) for value in values))


def reference_seconds() -> float:
    """Return the time of fixed work of the kinds that the benchmarks do: products, sorting, interpreted code."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 900, 900)).astype(np.float32), rng.standard_normal(1_000_000)
    started = time.perf_counter()
    for _ in range(20):
        np.sort(b)
        a[0] @ a[1]
        sum(i * i for i in range(100_000))
    return time.perf_counter() - started


def measure(names: Sequence[str], times: int) -> dict[str, list[float]]:
    """Run the benchmarks in turns; a benchmark that cannot run here is said and left out."""
    found: dict[str, list[float]] = {}
    left = list(names)
    for turn in range(times):
        for name in list(left):
            print(f"{turn + 1}/{times} {name}", file=sys.stderr, flush=True)
            before = reference_seconds()
            figures = _quick(name)
            reference = (before + reference_seconds()) / 2
            if figures is None:
                left.remove(name)
                continue
            for figure, kind in FIGURES[name].items():
                if figure in figures:
                    scale = {TIME: 1 / reference, RATE: reference}.get(kind, 1.0)
                    found.setdefault(f"{name}.{figure}", []).append(figures[figure] * scale)
    return found


def _quick(name: str) -> dict[str, float] | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", str(out)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{name} is left out: {reason}", file=sys.stderr)
            return None
        figures: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))["figures"]
        return figures


def main() -> int:
    """Run from the command line; return 1 if a figure got worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(FIGURES)}; default: all")
    parser.add_argument("--times", type=int, default=3, help="how often each runs (default 3)")
    parser.add_argument("--record", action="store_true", help=f"keep this run as {RECORDED.name} for later ones")
    parser.add_argument("--recorded", type=Path, default=RECORDED, help="the recorded run")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in FIGURES]:
        parser.error(f"no such benchmark: {unknown[0]}; choose from {', '.join(FIGURES)}")
    found = measure(given.names or list(FIGURES), given.times)
    if not found:
        print("no benchmark ran", file=sys.stderr)
        return 2
    if given.record:
        record = {"figures": found, "environment": environment(quick=True)}
        write_text(given.recorded, json.dumps(record, indent=1) + "\n")
        print(f"recorded in {given.recorded}")
        return 0
    if not given.recorded.is_file():
        print(f"no recorded run ({given.recorded}): make one with --record", file=sys.stderr)
        return 2
    changes = compare(found, json.loads(given.recorded.read_text(encoding="utf-8"))["figures"])
    print(f"{'figure':<42} {'now':>9} {'recorded':>9} {'ratio':>6} {'noise':>6}   (a ratio above 1 is better)")
    for one in changes:
        told = "   worse" if one.worse else ""
        print(f"{one.name:<42} {one.now:>9.4g} {one.then:>9.4g} {one.ratio:>6.2f} {one.noise:>6.2f}{told}")
    worse = [one.name for one in changes if one.worse]
    print(f"worse by more than the noise: {', '.join(worse)}" if worse else "nothing got worse by more than the noise")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
