"""How often "two dials do better than one" is said, by model-free simulation: without a difference, and with one.

Tables of outcomes are drawn at random. Without a difference both policies have the same true frontier, though two
dials have 2,500 settings and one has 50: both reads are noise (`noise`), or the second read is noise and one dial does
without it (`useless`), or so with a first read that errs on 0.1 % (`rare`). With a difference (`real`) each read finds
its own label, and the one dial, when it permits, leaves a share of the prompts declined. Keys: `said_CASE_N` for N test
prompts a label (as many choose), `sure_CASE_N` for the share of intervals above 0, `volume_CASE_N` for the mean
difference of the hypervolumes, which is not 0 without a difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from benchmarks.table import main
from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.surface import (
    AXES,
    COUNTED,
    Risk,
    Surface,
    cost_saved,
    frontier,
    frontier_volume,
    least_losses,
)
from experiments.dials.text import WORTH
from probes.statistics.intervals import Estimate
from probes.statistics.seeds import named_rng
from probes.statistics.tradeoffs import candidate_thresholds

LABELS = ("benign", "harmful", "uncertain")
SAME, REAL = ("noise", "useless", "rare"), "real"
SIZES = (60, 200, 600)
COSTS = {"over_refusal": 1.0, "missed_harm": 1.0, "overconfidence": 1.0}


@dataclass(frozen=True)
class Sample:
    """Prompts of a choice part and a test part, and the table of each policy on them."""

    label: np.ndarray  # an index into LABELS
    test: np.ndarray
    groups: np.ndarray
    two: Counterfactuals
    one: Counterfactuals

    def risks(self, table: Counterfactuals, test: bool) -> dict[str, Risk]:
        """Return the risks of the axes on one part."""
        found = {}
        for name in AXES:
            label, counts = COUNTED[name]
            rows = np.flatnonzero((self.label == LABELS.index(label)) & (self.test == test))
            found[name] = Risk(rows, np.isin(table.actions[rows].astype(str), list(counts)).astype(np.int8))
        return found

    def surface(self, table: Counterfactuals) -> Surface:
        """Return the surface at the candidate thresholds of the choice prompts."""
        wanted = (self.label > 0,) if len(table.dials) == 1 else (self.label == 1, self.label == 2)
        chosen = ~self.test
        thresholds = [
            candidate_thresholds(p[chosen], y[chosen]) for p, y in zip(table.probability, wanted, strict=True)
        ]
        return Surface.over(table, thresholds)


def draw(case: str, n: int, seed: int, group_size: int = 1, correlation: float = 0.0, held: float = 0.3) -> Sample:
    """Draw n prompts a label for each part.

    Args:
        correlation: of the reads within a group.
        held: the share of prompts that the one dial leaves declined, in the case `real`.
    """
    rng = named_rng(seed, f"two dials, {case}")
    label, part = np.repeat(np.tile(np.arange(3), 2), n), np.repeat([0, 1], 3 * n)
    groups = np.repeat(np.arange(6), n) * n + np.tile(np.arange(n) // group_size, 6)

    def noise() -> Float[np.ndarray, " prompts"]:
        shared = rng.normal(size=6 * n)[groups]
        return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.normal(size=6 * n)

    first, second = noise(), noise()
    match case:
        case "useless":
            first += 1.5 * (label > 0)
        case "rare":
            first += 6.2 * (label > 0) - 3.1
        case "real":
            first, second = first + 3.0 * (label == 1), second + 3.0 * (label == 2)
    either = first if case in ("useless", "rare") else np.maximum(first, second)
    declined = np.where(label == 2, "abstain", "refuse").astype(object)  # right for its label, whichever gate declines
    answered = np.full(6 * n, "answer", dtype=object)
    permitted = np.where((rng.random(6 * n) < held) & (case == "real"), declined, answered)
    names = ("normative", "epistemic")
    return Sample(
        label,
        part == 1,
        groups,
        _table(names, [first, second], [declined, declined, answered, answered]),
        _table(("either",), [either], [declined, permitted, answered]),
    )


def _table(
    names: tuple[str, ...], reads: list[Float[np.ndarray, " prompts"]], actions: list[np.ndarray]
) -> Counterfactuals:
    """Return a table; its last outcome is that of the plain model, which answers everything."""
    outcomes = (*reachable_outcomes(len(names), dead_band=False), ())
    shape = len(actions[0]), len(actions)
    return Counterfactuals(names, outcomes, ndtr(np.stack(reads)), np.stack(actions, axis=1), np.zeros(shape, bool))


def _with_plain(surface: Surface, table: Counterfactuals) -> Surface:
    off = np.full((1, surface.settings.shape[1]), np.nan)
    plain = np.full((1, surface.outcome.shape[1]), len(table.outcomes) - 1, dtype=np.int8)
    return Surface(np.vstack([surface.settings, off]), np.vstack([surface.outcome, plain]))


def compare(sample: Sample, volumes: bool = True) -> tuple[Estimate, float]:
    """Return what two dials save over one, and the difference of their hypervolumes (0 where not asked for)."""
    found, volume = [], []
    for table in (sample.two, sample.one):
        surface = _with_plain(sample.surface(table), table)
        choice, test = sample.risks(table, False), sample.risks(table, True)
        found.append(least_losses(surface, choice, test, COSTS))
        volume.append(frontier_volume(surface.at(frontier(surface, choice)), test).estimate if volumes else 0.0)
    return cost_saved(found[0], found[1], sample.groups), volume[0] - volume[1]


def measure(quick: bool) -> dict[str, float]:
    """Return how often the claim is made in each case and size."""
    figures: dict[str, float] = {}
    draws = 2 if quick else 200
    for case in (*SAME, REAL):
        for n in SIZES[:1] if quick else SIZES:
            made = [compare(draw(case, n, seed)) for seed in range(draws)]
            figures |= {
                f"said_{case}_{n}": float(np.mean([saved.low > WORTH for saved, _ in made])),
                f"sure_{case}_{n}": float(np.mean([saved.low > 0 for saved, _ in made])),
                f"volume_{case}_{n}": float(np.mean([volume for _, volume in made])),
            }
    return figures


if __name__ == "__main__":
    main("simulations.two_dials", measure)
