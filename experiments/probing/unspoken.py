"""Reading without saying: how well a model reads that a question has no answer, where it answers all the same.

One probe is fitted to all labelled prompts by nested folds of whole pairs: each prompt is read by a probe, at a layer
and position, that were chosen without its fold. Twins that the model answers wrong stay in the fit, since it takes
labels, not answers, and the few twins that a small model gets right are too few to fit to. They are not *known*: no
count of known facts, and not the threshold of silence, has them (METHODS, Untouched models).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.stats import binom

from experiments.probing.read_probes import StoredLoci, label_contrasts
from experiments.probing.results import ALL, LOST, MOST_LAYERS, POSITIONS, CategoryReading, UnspokenReads
from experiments.responses.loaded_run import LoadedRun
from extract.in_memory import Activations
from extract.prompts.prompt import Prompt
from extract.store.activation_store import ActivationStore
from probes.contrast import Contrast
from probes.direction import Locus
from probes.grid.logistic import fit_platt
from probes.grid.probe_grid import LOGISTIC, LocusScores, ProbeGrid, choose_locus_by_fold
from probes.grid.solver import fit_logistic_batch
from probes.statistics.intervals import NO_ESTIMATE, NO_RATE, Estimate
from probes.statistics.metrics import LEAST_OF_CLASS, auroc_within
from scoring.rates import RATES, grouped_rate

FOLDS = 4
LEAST_OWN = 20  # uncertain prompts that a category needs for a probe of its own


@dataclass(frozen=True)
class NestedReads:
    """A contrast's samples, each with its fold and the calibrated probability by a probe fitted without that fold."""

    contrast: Contrast
    fold: Int[np.ndarray, " samples"]
    probability: Float[np.ndarray, " samples"]
    loci: tuple[Locus, ...]  # of each fold

    def auroc(self, some: Bool[np.ndarray, " samples"]) -> Estimate:
        """Return the AUROC among some of the samples, each compared with those of its own fold."""
        y, groups = self.contrast.y[some], self.contrast.groups[some]
        return auroc_within(self.fold[some], y, self.probability[some], groups).counted(int(some.sum()))


def layers_read(layers: Sequence[int], most: int = MOST_LAYERS) -> list[int]:
    """Return at most so many of the stored layers, evenly spread over the middle of them."""
    middle = layers[len(layers) // 4 : max(len(layers) // 4 + 1, 7 * len(layers) // 8 + 1)]
    return [middle[int(k)] for k in np.unique(np.linspace(0, len(middle) - 1, most).round())]


def nested_reads(
    store: ActivationStore,
    contrasts: Sequence[Contrast],
    seed: int,
    progress: Callable[[], None] = lambda: None,
    most_layers: int = MOST_LAYERS,
) -> list[NestedReads]:
    """Read every sample of some contrasts by nested folds; ValueError: a contrast has too few groups for them."""
    layers, positions = (
        layers_read(store.layers, most_layers),
        [p for p in POSITIONS if p in store.positions] or [store.positions[0]],
    )
    present = np.array([store.present[store.positions.index(p)] for p in positions])
    grid = ProbeGrid.cross_validated(contrasts, FOLDS, seed=seed)
    loci = StoredLoci(store, layers, positions)
    scored = list(grid.scores_by_locus(loci, layers, positions, present=present, progress=progress))
    by_name = [[s for s in scored if s.contrast == c.name] for c in contrasts]
    return [read_by_fold(store, grid, at, own) for at, own in enumerate(by_name)]


def read_by_fold(
    store: ActivationStore | Activations, grid: ProbeGrid, at: int, scored: Sequence[LocusScores]
) -> NestedReads:
    """Fit the chosen probe of each fold again, calibrate it on its inner folds, and read the samples left out."""
    contrast, folds = grid.contrasts[at], grid.folds[at]
    chosen, _ = choose_locus_by_fold(scored)
    of_fold, probability = np.zeros(len(contrast.rows), dtype=int), np.zeros(len(contrast.rows))
    for k, (locus, fold) in enumerate(zip(chosen, folds, strict=True)):
        X = store.read(locus.layer, locus.position)[contrast.rows]
        fitted = np.zeros((len(fold.inner) + 1, len(X)), dtype=bool)
        for inside, rows in zip(fitted, (*(rows for rows, _ in fold.inner), fold.train), strict=True):
            inside[rows] = True
        C, labels = float(locus.scores[LOGISTIC].C[k]), np.tile(contrast.y, (len(fitted), 1))
        *inner, own = fit_logistic_batch(X, fitted, labels, [C]).scores[:, 0]
        left_out = [rows for _, rows in fold.inner]
        scores = np.concatenate([score[rows] for score, rows in zip(inner, left_out, strict=True)])
        platt = fit_platt(scores, contrast.y[np.concatenate(left_out)])
        of_fold[fold.test], probability[fold.test] = k, platt.probability(own[fold.test])
    loci = tuple(Locus(store.site, locus.layer, locus.position) for locus in chosen)
    return NestedReads(contrast, of_fold, probability, loci)


def threshold_that_loses(right: Float[np.ndarray, " right"], share: float = LOST) -> float:
    """Return the least threshold that at most this share of the right answers' probabilities exceeds."""
    return float(np.sort(right)[::-1][int(share * len(right) + 1e-9)]) if len(right) else np.inf


def silent(
    reads: NestedReads, firm: Bool[np.ndarray, " samples"], right: Bool[np.ndarray, " samples"]
) -> Bool[np.ndarray, " samples"]:
    """Return which prompts are answered firmly above the threshold of the *other* folds' right answers."""
    fold, probability = reads.fold, reads.probability
    thresholds = np.array([threshold_that_loses(probability[right & (fold != k)]) for k in range(int(fold.max()) + 1)])
    return firm & (probability > thresholds[fold])


def silent_share(
    reads: NestedReads,
    firm: Bool[np.ndarray, " samples"],
    right: Bool[np.ndarray, " samples"],
    among: Bool[np.ndarray, " samples"],
) -> Estimate:
    """Return the share of some prompts that is silent, with limits for both draws: of prompts and of right answers.

    The threshold is a quantile of the right answers, whose exact limits are two of them; with fewer than 51 it has no
    upper one, so that the share's lower limit is 0. The two are joined as in `combination` (MOVER): simulated coverage
    is 95 to 98 % with 15 to 200 right answers (docs/unspoken.md).
    """
    share = grouped_rate(silent(reads, firm, right)[among], reads.contrast.groups[among])
    if not (share.known and right.any()):
        return Estimate.of(NO_RATE, n=share.n)
    known, n = np.sort(reads.probability[right]), int(right.sum())
    first, last = (int(binom.ppf(tail, n, 1 - LOST)) for tail in (0.025, 0.975))
    ends = known[first - 1] if first >= 1 else -np.inf, known[last] if last < n else np.inf
    most, least = (float((firm & (reads.probability > end))[among].mean()) for end in ends)
    value, low, high = share.limits()
    below, above = np.hypot(max(0.0, value - least), value - low), np.hypot(max(0.0, most - value), high - value)
    return replace(share, low=float(max(0.0, value - below)), high=float(min(1.0, value + above)))


def reading_without_saying(loaded: LoadedRun) -> UnspokenReads:
    """Return the reads of both kinds by nested folds, and what the model says of what it reads, by category."""
    reading = loaded.reading
    contrasts = [c for c in label_contrasts(reading.corpus) if c.name in ("normative", "epistemic")]
    if loaded.config.prompts.contrast:
        return UnspokenReads(reason="its two labels are other ways of declining (prompts.contrast)")
    given = reading.store, contrasts, loaded.config.seed
    try:
        with loaded.reporter.task("reading without saying", MOST_LAYERS * len(POSITIONS)) as advance:
            normative, epistemic = nested_reads(*given, progress=lambda: advance(1))
    except ValueError as error:
        return UnspokenReads(reason=str(error))
    return unspoken_reads(loaded, normative, epistemic, own_reads(loaded, epistemic.contrast))


def own_reads(loaded: LoadedRun, contrast: Contrast) -> dict[str, Estimate]:
    """Return the AUROC of a probe of each category's own pairs, of those that have enough for nested folds."""
    reading, found = loaded.reading, dict[str, Estimate]()
    category = category_of_pair(contrast, reading.prompts)
    for name in sorted(set(category) - {""}):
        rows = np.flatnonzero(category == name)
        if contrast.y[rows].sum() < LEAST_OWN:
            continue
        columns = (column[rows] for column in (contrast.rows, contrast.y, contrast.groups, contrast.part))
        with suppress(ValueError):  # too few groups
            given = reading.store, [Contrast(name, *columns)], loaded.config.seed
            (reads,) = nested_reads(*given, most_layers=MOST_LAYERS // 2)
            found[name] = reads.auroc(np.ones(len(rows), dtype=bool))
    return found


def category_of_pair(contrast: Contrast, prompts: Sequence[Prompt]) -> Shaped[np.ndarray, " samples"]:
    """Return the category of each sample, of a twin that of its uncertain prompt; "" where there is none."""
    own = [prompts[row].category or "" for row in contrast.rows]
    of_pair = {prompts[row].pair: own[k] for k, row in enumerate(contrast.rows) if contrast.y[k] and prompts[row].pair}
    return np.array([of_pair.get(prompts[row].pair, own[k]) for k, row in enumerate(contrast.rows)], dtype=object)


def unspoken_reads(
    loaded: LoadedRun, normative: NestedReads, epistemic: NestedReads, own: Mapping[str, Estimate] | None = None
) -> UnspokenReads:
    """Count what is read and how the model answers; completions are those of the run, reads of all its prompts."""
    contrast, prompts = epistemic.contrast, loaded.reading.prompts
    behaviour, place = loaded.behaviour, {int(row): k for k, row in enumerate(loaded.answered)}
    at = np.array([place.get(int(row), -1) for row in contrast.rows])  # among the answered prompts
    action = np.array([behaviour.actions[k] if k >= 0 else None for k in at], dtype=object)
    right = ~contrast.y & np.array([k >= 0 and bool(behaviour.correct[k]) for k in at])
    judged = np.array([did is not None for did in action])
    firm = contrast.y & np.isin(action.astype(str), sorted(RATES["overconfidence"][1]))
    category = category_of_pair(contrast, prompts)
    checked = judged & ~contrast.y & np.array([prompts[row].answer is not None for row in contrast.rows])
    groups = contrast.groups

    def counted(name: str, some: Bool[np.ndarray, " samples"]) -> CategoryReading:
        asked, twins = some & judged & contrast.y, some & checked
        return CategoryReading(
            category=name,
            auroc=epistemic.auroc(some),
            auroc_own=(own or {}).get(name, NO_ESTIMATE),
            auroc_known=epistemic.auroc(some & (contrast.y | right)),
            abstained=grouped_rate((action == "abstain")[asked], groups[asked]),
            silent=silent_share(epistemic, firm, right, asked),
            known=grouped_rate(right[twins], groups[twins]),
        )

    names = sorted({name for name in category[contrast.y] if name})
    within = {name: category == name for name in names if (contrast.y & (category == name)).sum() >= LEAST_OF_CLASS}
    lost = silent(epistemic, right, right)[right]
    return UnspokenReads(
        normative=normative.auroc(np.ones(len(normative.fold), dtype=bool)),
        lost=grouped_rate(lost, groups[right]),
        categories=tuple(
            counted(name, some) for name, some in ({ALL: np.ones(len(category), dtype=bool)} | within).items()
        ),
    )
