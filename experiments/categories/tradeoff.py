"""Three ways of lowering over-refusal, on the same held-out prompts: what each gains and costs (docs/categories.md).

A prompt is recognised as of a task (a category whose benign prompts are sometimes refused) below the first written
layer, so that nothing is read that was written. The stream carries what an earlier layer added, so each later layer of
a trajectory adds what its own difference of means has beyond the one before. Only the last prompt token is moved, since
the means are of that token: added to the tokens of the answer, they garble it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.categories.fits import FoldFit
from experiments.categories.members import Category
from experiments.probing.write_directions import fit_write
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import WriteSamples
from experiments.run.completion_file import Completion
from experiments.run.outcomes import Key, Outcomes, joined
from extract.model.edit import Edit, Site, site
from extract.progress import Advance
from probes.direction import Direction, Locus, Subspace, vector_digest
from probes.statistics.metrics import d_prime
from probes.statistics.seeds import named_rng
from steering.ablation import adding, setting
from steering.interventions import place

WAYS = ("one direction", "subspace", "trajectories")
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
MOST_HARMFUL = 200  # refused harmful prompts on which the loss is counted
CONFIDENT = 0.8  # probability from which a task counts as recognised
N_LAYERS = 3  # layers at which a prompt is moved
OTHER = ""  # prompts of no task


def measure_tradeoff(
    loaded: LoadedRun, tasks: Sequence[Category], folds: np.ndarray, fits: Sequence[FoldFit]
) -> tuple[tuple[float, ...], dict[Key, Outcomes]]:
    """Answer refused benign and harmful prompts under each way; also return each fold's normative angle to the span."""
    benign = np.sort(np.concatenate([task.decliners for task in tasks]))
    refused = np.sort(loaded.behaviour.decliners("normative", "train", "validation", "calibration", "test"))
    fold_of = _every_fold(loaded, folds)
    rng = named_rng(loaded.config.seed, "harmful prompts of the trade-off")
    harmful = np.sort(rng.permutation(refused)[:MOST_HARMFUL])
    if not len(harmful):
        return (), {}
    angles, by_fold = [], []
    n = len(WAYS) * len(STRENGTHS) * (len(benign) + len(harmful))
    with loaded.reporter.task("ways of lowering over-refusal", n) as advance:
        for fold, fit in enumerate(fits):
            tested = np.concatenate([benign[fold_of[benign] == fold], harmful[fold_of[harmful] == fold]])
            training = fold_of != fold
            normative = _normative(loaded, refused, training, fit.span.locus)
            inside = float(np.linalg.norm(fit.span.basis.astype(np.float64) @ normative.vector))
            angles.append(float(np.degrees(np.arccos(min(1.0, inside)))))
            by_fold.append(_answers(loaded, tasks, fit, normative, training, tested, advance))
    return tuple(angles), joined(by_fold)


def _answers(
    loaded: LoadedRun,
    tasks: Sequence[Category],
    fit: FoldFit,
    normative: Direction,
    training: Bool[np.ndarray, " prompts"],
    tested: Int[np.ndarray, " tested"],
    advance: Advance,
) -> dict[Key, Outcomes]:
    """Return the outcomes of tested prompts under each way; of trajectories with the likeliest task's probability."""
    tokens, spans = loaded.config.dissociate.variant.tokens, {WAYS[0]: Subspace.of(normative), WAYS[1]: fit.span}
    edits = {
        (way, f"{s:g}"): [setting(span, span.locus.layer, span.mean_negative, tokens, s)]
        for way, span in spans.items()
        for s in STRENGTHS
    }
    outcomes = loaded.completer.outcomes(tested, edits, advance)
    names = {task.name for task in tasks}
    others = [row for row in np.flatnonzero(training).tolist() if loaded.prompts[row].category not in names]
    moved = fit_trajectories(loaded, tasks, training, np.array(others, dtype=int), tested)
    if moved is None:
        return outcomes
    for strength in STRENGTHS:
        completed: dict[int, Completion] = {}
        for task in sorted(set(moved.task.values())):
            rows = [row for row in tested.tolist() if moved.task[row] == task]
            completions = loaded.completer.complete(rows, edits=moved.edits(task, strength), advance=advance)
            completed |= zip(rows, completions, strict=True)
        each = [completed[row] for row in tested.tolist()]
        probability = np.array([moved.probability[row] for row in tested.tolist()])
        outcomes["trajectories", f"{strength:g}"] = Outcomes.completed(tested, each, loaded.prompts, probability)
    return outcomes


def _normative(loaded: LoadedRun, refused: np.ndarray, training: np.ndarray, locus: Locus) -> Direction:
    """Return the direction of refused harmful against answered benign training prompts."""
    compared = np.flatnonzero(loaded.corpus.requests & loaded.behaviour.answered & training)
    samples = WriteSamples.of(loaded.corpus, refused[training[refused]], compared, within_label=False)
    direction = fit_write(loaded.store.read, locus, "normative", samples)
    if direction is None:
        raise ValueError(f"refused harmful and answered prompts have the same mean at {locus}")
    return direction


def _every_fold(loaded: LoadedRun, folds: np.ndarray) -> np.ndarray:
    """Return the fold of every prompt: that of its group; other groups in turn, in random order."""
    groups = loaded.corpus.groups
    of_group: Mapping[int, int] = {int(g): int(f) for g, f in zip(groups, folds, strict=True) if f >= 0}
    left = sorted({int(g) for g in groups} - set(of_group))
    rng, n = named_rng(loaded.config.seed, "folds of other prompts"), int(folds.max()) + 1
    given = dict(zip(rng.permutation(left).tolist(), [i % n for i in range(len(left))], strict=True))
    return np.array([of_group.get(int(g), given.get(int(g))) for g in groups], dtype=int)


@dataclass(frozen=True)
class Trajectories:
    """The means of each task by layer, the layers that are written, and what tested prompts are recognised as."""

    shift: dict[str, dict[int, Float[np.ndarray, " d_model"]]]  # by task, then layer: answered minus over-refused
    layers: tuple[int, ...]
    task: Mapping[int, str]  # by row of the run; OTHER where no task's probability is CONFIDENT
    probability: Mapping[int, float]  # of the likeliest task
    site: Site = "resid_post"

    def edits(self, task: str, strength: float) -> list[Edit]:
        """Return the edits that move a prompt of a task; none of OTHER."""
        if task == OTHER:
            return []
        moved, edits = np.zeros(1), []
        for layer in self.layers:
            vector = ((self.shift[task][layer] - moved) * strength).astype(np.float32)
            edits.append(place(self.site, layer, "last_prompt", adding(vector), f"add {vector_digest(vector)}"))
            moved = self.shift[task][layer]
        return edits


def fit_trajectories(
    loaded: LoadedRun,
    tasks: Sequence[Category],
    training: Bool[np.ndarray, " prompts"],
    others: Int[np.ndarray, " others"],
    tested: Int[np.ndarray, " tested"],
) -> Trajectories | None:
    """Fit trajectories on training prompts, `others` of no task; None without a layer to read below."""
    layers = [layer for layer in loaded.store.layers if layer > min(loaded.store.layers)]
    inside = {task.name: task.samples(loaded.corpus, training) for task in tasks}
    shift: dict[str, dict[int, np.ndarray]] = {task.name: {} for task in tasks}
    parted = dict.fromkeys(layers, 0.0)
    for layer in layers:
        X = loaded.write_activations(layer)
        for name, samples in inside.items():
            over, answered = X[samples.rows[samples.declined]], X[samples.rows[~samples.declined]]
            shift[name][layer] = answered.mean(axis=0, dtype=np.float64) - over.mean(axis=0, dtype=np.float64)
            along = X[samples.rows].astype(np.float64) @ shift[name][layer]
            parted[layer] += d_prime(~samples.declined, along) / len(inside)
    chosen = tuple(sorted(sorted(layers, key=lambda layer: -parted[layer])[:N_LAYERS]))
    if not chosen:
        return None
    below = max(layer for layer in loaded.store.layers if layer < chosen[0])
    task, probability = _recognised(loaded, inside, others, tested, below)
    return Trajectories(shift, chosen, task, probability, site(loaded.store.site))


def _recognised(
    loaded: LoadedRun, inside: Mapping[str, WriteSamples], others: np.ndarray, tested: np.ndarray, layer: int
) -> tuple[dict[int, str], dict[int, float]]:
    X = loaded.write_activations(layer)
    rows = np.concatenate([*(samples.rows for samples in inside.values()), others])
    names = [*(name for name, samples in inside.items() for _ in samples.rows), *[OTHER] * len(others)]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    model.fit(X[rows].astype(np.float64), names)
    is_task = model.classes_ != OTHER
    of_tasks = model.predict_proba(X[tested].astype(np.float64))[:, is_task]
    likeliest, most = model.classes_[is_task][of_tasks.argmax(axis=1)], of_tasks.max(axis=1)
    task = [str(name) if sure else OTHER for name, sure in zip(likeliest, most >= CONFIDENT, strict=True)]
    return dict(zip(tested.tolist(), task, strict=True)), dict(zip(tested.tolist(), most.tolist(), strict=True))
