"""Trajectories of tasks over layers (SafeConstellations, arXiv 2508.11290): recognise the task, move towards answering.

A task is a category whose benign prompts are sometimes refused. At each layer it has the mean stream of its answered
and of its over-refused training prompts at the last prompt token. A prompt is recognised as of a task by a linear
classifier on the stream below the first written layer, so that nothing is read that was written; one that is not
recognised confidently is left as it is. It is fitted on benign prompts: a harmful one of a task's category may be
recognised, and then it is moved too, or lie apart, and be spared; how many are is measured. A recognised prompt is
moved by the difference of its task's means, at the layers at which the two part most. The stream carries what an
earlier layer added, so each later layer adds what its own difference has beyond the one before: adding each whole would
move the prompt several times as far. Only the last prompt token is moved, since the means are of that token: added to
the tokens of the answer, they garble it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.categories.members import Category
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import WriteSamples
from extract.model.edit import Edit, Site, site
from probes.direction import vector_digest
from steering.interventions import DeviceCopies, add, place

CONFIDENT = 0.8  # probability from which a task counts as recognised
N_LAYERS = 3  # layers at which a prompt is moved
OTHER = ""  # prompts of no task


@dataclass(frozen=True)
class Trajectories:
    """The means of each task by layer, the layers that are written, and the task of each prompt (OTHER if unsure)."""

    shift: dict[str, dict[int, Float[np.ndarray, " d_model"]]]  # by task, then layer: answered minus over-refused
    layers: tuple[int, ...]
    task: dict[int, str]  # by row of the run
    site: Site = "resid_post"

    def edits(self, task: str, strength: float) -> list[Edit]:
        """Return the edits that move a prompt of a task; none of OTHER."""
        if task == OTHER:
            return []
        moved, edits = np.zeros(1), []
        for layer in self.layers:
            edits.append(_moving((self.shift[task][layer] - moved) * strength, self.site, layer))
            moved = self.shift[task][layer]
        return edits


def fit_trajectories(
    loaded: LoadedRun,
    tasks: Sequence[Category],
    training: Bool[np.ndarray, " prompts"],
    others: Int[np.ndarray, " others"],
    tested: Int[np.ndarray, " tested"],
) -> Trajectories | None:
    """Fit trajectories on training prompts and recognise the task of tested ones; None without a layer to read below.

    Args:
        training: whether each prompt of the run is a training one.
        others: training rows of other categories, which belong to no task.
    """
    layers = [layer for layer in loaded.store.layers if layer > min(loaded.store.layers)]
    inside = {task.name: task.samples(loaded.corpus, training) for task in tasks}
    shift: dict[str, dict[int, np.ndarray]] = {task.name: {} for task in tasks}
    parted = dict.fromkeys(layers, 0.0)
    for layer in layers:
        X = loaded.write_activations(layer)
        for name, samples in inside.items():
            over, answered = X[samples.rows[samples.declined]], X[samples.rows[~samples.declined]]
            shift[name][layer] = answered.mean(axis=0, dtype=np.float64) - over.mean(axis=0, dtype=np.float64)
            parted[layer] += _separation(answered, over, shift[name][layer]) / len(inside)
    chosen = tuple(sorted(sorted(layers, key=lambda layer: -parted[layer])[:N_LAYERS]))
    if not chosen:
        return None
    below = max(layer for layer in loaded.store.layers if layer < chosen[0])
    return Trajectories(shift, chosen, _recognised(loaded, inside, others, tested, below), site(loaded.store.site))


def _recognised(
    loaded: LoadedRun, inside: Mapping[str, WriteSamples], others: np.ndarray, tested: np.ndarray, layer: int
) -> dict[int, str]:
    X = loaded.write_activations(layer)
    rows = np.concatenate([*(samples.rows for samples in inside.values()), others])
    names = [*(name for name, samples in inside.items() for _ in samples.rows), *[OTHER] * len(others)]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    model.fit(X[rows].astype(np.float64), names)
    sure = model.predict_proba(X[tested].astype(np.float64))
    tasks_of_rows = [str(model.classes_[p.argmax()]) if p.max() >= CONFIDENT else OTHER for p in sure]
    return dict(zip(tested.tolist(), tasks_of_rows, strict=True))


def _separation(a: np.ndarray, b: np.ndarray, shift: np.ndarray) -> float:
    """Return the distance of two means along their difference, in standard deviations within the classes."""
    along_a, along_b = a.astype(np.float64) @ shift, b.astype(np.float64) @ shift
    spread = np.sqrt((along_a.var() + along_b.var()) / 2)
    return float((along_a.mean() - along_b.mean()) / spread) if spread > 0 else 0.0


def _moving(vector: Float[np.ndarray, " d_model"], where: Site, layer: int) -> Edit:
    moved = DeviceCopies(vector.astype(np.float32))
    key = f"add {vector_digest(vector.astype(np.float32))}"
    return place(where, layer, "last_prompt", lambda x: add(x, moved.on(x.device), 1.0), key)
