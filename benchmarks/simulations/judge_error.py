"""Coverage and width of intervals of a rate that a judge gives for all rows and people for some of them.

Judge and truth are drawn with known error, both with the same correlation within groups of four: a row takes its
group's value with probability sqrt(ICC). People's labels are of rows drawn at random. Each interval is for the true
rate; `labels only` does without the judge, and an interval wider than that is not worth the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from benchmarks.table import main
from probes.statistics.intervals import (
    Estimate,
    clopper_pearson,
    difference,
    effective_groups,
    grouped_mean,
)
from probes.statistics.post_stratified import Stratum, post_stratified_rate

RATES = (0.0, 0.01, 0.02, 0.05, 0.2)
LABELS = (100, 300)
ERRORS = {"80 %": (0.2, 0.2), "90 %": (0.1, 0.1), "99 %": (0.01, 0.01), "misses half": (0.5, 0.0)}  # missed, false
ICCS = (0.0, 0.5)
N_ROWS, SIZE = 1000, 4  # judged rows; rows a group
Rows = Bool[np.ndarray, " rows"]


@dataclass(frozen=True)
class Judged:
    """Rows with the judge's verdict, the truth, their groups, and the index of the labelled ones."""

    verdict: Rows
    truth: Rows
    groups: Int[np.ndarray, " rows"]
    labelled: Int[np.ndarray, " labels"]


def draw(rate: float, errors: tuple[float, float], icc: float, n_labels: int, rng: np.random.Generator) -> Judged:
    """Draw rows of a true rate; the judge misses a share of what is true and counts a share of what is not."""
    groups = np.repeat(np.arange(N_ROWS // SIZE), SIZE)

    def clustered(mean: float) -> Rows:
        shared, own = rng.random(N_ROWS // SIZE) < mean, rng.random(N_ROWS) < mean
        return np.where(rng.random(N_ROWS) < np.sqrt(icc), shared[groups], own)

    truth, missed, false = clustered(rate), clustered(errors[0]), clustered(errors[1])
    verdict = np.where(truth, ~missed, false)
    return Judged(verdict, truth, groups, rng.choice(N_ROWS, n_labels, replace=False))


def strata_of(judged: Judged) -> list[Stratum]:
    """Return the rows by the judge's verdict, with the mean truth of the labelled ones."""
    found = []
    for verdict in (True, False):
        mine = judged.labelled[judged.verdict[judged.labelled] == verdict]
        mean = float(judged.truth[mine].mean()) if len(mine) else 0.0
        found.append(Stratum(float((judged.verdict == verdict).mean()), mean, effective_groups(judged.groups[mine])))
    return found


def post_stratified(judged: Judged) -> Estimate:
    """Return the interval that `refusal score --labels` prints."""
    return post_stratified_rate(strata_of(judged), effective_groups(judged.groups))


def normal(judged: Judged) -> Estimate:
    """Return the estimate of 2301.09633 with a normal interval over groups."""
    wrong = judged.verdict[judged.labelled].astype(int) - judged.truth[judged.labelled]
    of_all = grouped_mean(judged.verdict, judged.groups)
    of_labelled = grouped_mean(wrong, judged.groups[judged.labelled])
    return difference(of_all, of_labelled)


def labels_only(judged: Judged) -> Estimate:
    """Return the rate among the labelled rows by Clopper and Pearson."""
    n = effective_groups(judged.groups[judged.labelled])
    return clopper_pearson(judged.truth[judged.labelled].mean() * n, n)


INTERVALS: dict[str, Callable[[Judged], Estimate]] = {
    "post-stratified": post_stratified,
    "normal": normal,
    "labels only": labels_only,
}


def coverage(
    rate: float,
    errors: tuple[float, float],
    icc: float,
    n_labels: int,
    n_runs: int,
    names: Sequence[str],
) -> dict[str, tuple[float, float]]:
    """Return the share of intervals of each kind that contain the rate, and their mean width within [0, 1]."""
    rng = np.random.default_rng([round(1000 * rate), *(round(1000 * error) for error in errors), n_labels])
    found: dict[str, list[tuple[bool, float]]] = {name: [] for name in names}
    for _ in range(n_runs):
        judged = draw(rate, errors, icc, n_labels, rng)
        for name in names:
            interval = INTERVALS[name](judged)
            low, high = max(0.0, interval.low), min(1.0, interval.high)
            found[name].append((low - 1e-9 <= rate <= high + 1e-9, high - low))
    return {
        name: (float(np.mean(shares)), float(np.mean(widths)))
        for name, pairs in found.items()
        for shares, widths in [zip(*pairs, strict=True)]
    }


def measure(quick: bool) -> dict[str, float]:
    """Print the tables and return the figures."""
    n_runs, figures = 4 if quick else 500, dict[str, float]()
    for n_labels in LABELS:
        print(f"\n{n_labels} labels of {N_ROWS} rows: coverage, and mean width in points")
        print(f"{'judge, ICC, true rate':<28}" + "".join(f"{name:>17}" for name in INTERVALS))
        for judge, errors in ERRORS.items():
            for icc in ICCS:
                for rate in RATES:
                    cells = coverage(rate, errors, icc, n_labels, n_runs, tuple(INTERVALS))
                    name = f"{judge}, {icc:g}, {rate:g}"
                    print(
                        f"{name:<28}" + "".join(f"{share:10.3f}{100 * width:7.1f}" for share, width in cells.values())
                    )
                    figures |= {f"{kind}; {name}; {n_labels}": cell[0] for kind, cell in cells.items()}
    return figures


if __name__ == "__main__":
    main("simulations.judge_error", measure)
