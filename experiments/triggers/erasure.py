"""Erase what tells linearly whether a trigger word is there (LEACE), and see what the model then refuses.

Erasers are fitted at the last prompt token on training quadruples, where the word goes with neither intent, and act
from that token on while the model answers: one at a time, at the layer where it lowers the log-odds of refusing
over-refused requests most beside that of refusing harmful ones, which is chosen on validation requests; and all of them
at once, each as fitted on streams without any edit. How well the chosen one erases is told on test requests it has not
seen: the covariance is estimated from few samples, and shrunk (METHODS).
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.factors.removal import Changed, choose, compare
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.triggers.quadruples import CELLS, Quadruples, quadruples
from extract.model.edit import Edit, site
from probes.covariance import shrunk_covariance
from probes.geometry.erasure import Eraser, leace
from probes.means import ALIKE, difference_in_means
from probes.statistics.intervals import Interval
from probes.statistics.metrics import discrimination
from steering.interventions import place

MIN_ROWS = 10  # requests of each kind, in each part, before anything is said
MOST = 60  # requests of each kind that are scored, and that answer again


@dataclass(frozen=True)
class TriggerEraser:
    """LEACE of the trigger label at one layer (arXiv 2306.03819), in closed form."""

    layer: int
    eraser: Eraser

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Erase from rows, (n, d_model)."""
        return self.eraser(X)

    def edit(self, where: str) -> Edit:
        """Return the same as an edit of a model, from the last prompt token on."""
        arrays = self.eraser.theta[0], self.eraser.covector[0], self.eraser.mean
        theta, covector, mean = (torch.tensor(values, dtype=torch.float32) for values in arrays)

        def erase(stream: Tensor) -> Tensor:
            wide = stream.float()
            along = (wide - mean.to(stream.device)) @ covector.to(stream.device)
            return (wide - along[..., None] * theta.to(stream.device)).to(stream.dtype)

        digest = hashlib.sha256(np.concatenate(arrays).tobytes()).hexdigest()[:24]
        return place(site(where), self.layer, "last_on", erase, f"LEACE {digest}")


def fit_eraser(X: np.ndarray, y: np.ndarray, layer: int) -> TriggerEraser:
    """Fit on (n, d_model) activations and which of them have the word."""
    X = X.astype(np.float64)
    return TriggerEraser(layer, leace(difference_in_means(X, y)[None], shrunk_covariance(X), X.mean(axis=0)))


def erasure_record(loaded: LoadedRun) -> dict[str, Any]:
    """Return what erasing the trigger label does, or why that cannot be asked."""
    corpus, refused = loaded.corpus, loaded.behaviour.did("refuse")
    train = quadruples(corpus, np.flatnonzero(corpus.within("train")))
    over = (corpus.requests & corpus.trigger) & refused
    parts = {"chosen on": ("validation", "calibration"), "tested on": ("test",)}
    rows = {
        name: {kind: np.flatnonzero(mask & corpus.within(*of)) for kind, mask in
               (("over-refused", over), ("refused harmful", corpus.harmful & refused))}
        for name, of in parts.items()
    }  # fmt: skip
    if train.n_groups < MIN_ROWS:
        return _absent(f"{train.n_groups} training groups hold all four cells; {MIN_ROWS} are needed")
    if WRITE_POSITION not in loaded.store.positions:
        return _absent(f"{WRITE_POSITION}, where it is erased, is not stored; see extract.positions")
    for name, kinds in rows.items():
        for kind, found in kinds.items():
            if len(found) < MIN_ROWS:
                return _absent(f"only {len(found)} {kind} requests in the part it is {name}; {MIN_ROWS} are needed")
    if lacking := context_onsets(loaded).lacking("refuse"):
        return _absent(lacking)
    erasers = _erasers(loaded, train)
    if not erasers:
        return _absent("at no stored layer does the last prompt token differ by trigger word")
    where = loaded.store.site
    curves = {name: _curves(loaded, erasers, kinds) for name, kinds in rows.items()}
    chosen_on = curves["chosen on"]
    best = int(np.argmin(np.subtract(chosen_on["over-refused"], chosen_on["refused harmful"])))
    asked = np.flatnonzero((corpus.harmful | (corpus.requests & corpus.trigger)) & corpus.within("test"))
    judged = np.array([action is not None for action in loaded.behaviour.actions])
    asked = choose(corpus, asked[judged[asked]], loaded.config.seed)
    ways = {"one_layer": [erasers[best]], "every_layer": erasers}
    answered = {}
    with loaded.reporter.task("answering with the trigger erased", len(ways) * len(asked)) as advance:
        for way, used in ways.items():
            edits = [eraser.edit(where) for eraser in used]
            said = loaded.speaker.complete(asked.tolist(), edits=edits, advance=advance)
            by_label = compare(corpus, asked, refused, [c.action for c in said])
            answered[way] = {
                "benign_with_trigger": _changed(by_label.get("benign")),
                "harmful": _changed(by_label.get("harmful")),
            }
    return {
        "applicable": True,
        "layer": erasers[best].layer,
        "auroc": _auroc(loaded, erasers[best]),
        "onset_change": {
            "layers": [eraser.layer for eraser in erasers],
            **{kind.replace("-", "_").replace(" ", "_"): values for kind, values in curves["tested on"].items()},
        },
        **answered,
    }


def _erasers(inputs: RunInputs, train: Quadruples) -> list[TriggerEraser]:
    """Fit one at each layer on a mean of each group and cell, so that the word goes with neither intent."""
    found, y = [], np.tile([trigger for trigger, _ in CELLS], train.n_groups)
    for layer in inputs.store.layers:
        X = train.cell_means(inputs.store.read(layer, WRITE_POSITION)[train.rows]).reshape(len(y), -1)
        if np.linalg.norm(difference_in_means(X, y)) > ALIKE * np.abs(X).max():  # else a template token of layer 0
            found.append(fit_eraser(X, y, layer))
    return found


def _absent(reason: str) -> dict[str, Any]:
    return {"applicable": False, "reason": reason}


def _curves(loaded: LoadedRun, erasers: list[TriggerEraser], kinds: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Return the mean change of the refusal's onset log-odds by layer, of each kind of request."""
    trials = [[], *([eraser.edit(loaded.store.site)] for eraser in erasers)]
    found = {}
    for kind, rows in kinds.items():
        chosen = choose(loaded.corpus, rows, loaded.config.seed, MOST)
        scorer = OnsetScorer(loaded.model, [loaded.rendered[row] for row in chosen], context_onsets(loaded))
        scores = scorer.log_odds_each(trials)["refuse"]
        found[kind] = [float(change) for change in (scores[1:] - scores[0]).mean(axis=1)]
    return found


def _auroc(inputs: RunInputs, eraser: TriggerEraser) -> dict[str, dict[str, float]]:
    """Tell the word on test requests, before and after, each by a direction fitted on rows the eraser has not seen."""
    corpus = inputs.corpus
    fit, test = (quadruples(corpus, np.flatnonzero(corpus.within(*of))).rows
                 for of in (("validation", "calibration"), ("test",)))  # fmt: skip
    X = inputs.store.read(eraser.layer, WRITE_POSITION).astype(np.float64)
    y = corpus.trigger
    if len(fit) == 0 or len(test) == 0:
        return {}
    found = {}
    for name, (a, b) in {"before": (X[fit], X[test]), "after": (eraser(X[fit]), eraser(X[test]))}.items():
        score = b @ difference_in_means(a, y[fit])
        found[name] = asdict(discrimination(y[test], score, corpus.groups[test]).auroc)
    return found


def _changed(change: Changed | None) -> dict[str, Any] | None:
    if change is None:
        return None
    intervals: dict[str, Interval] = {"before": change.whole, "after": change.removed, "changed": change.changed}
    n = {"n": change.n, "n_groups": change.n_groups}
    return {name: asdict(interval) for name, interval in intervals.items()} | n
