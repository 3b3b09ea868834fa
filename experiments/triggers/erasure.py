"""Linear erasure (LEACE) of the presence of a trigger word, and its effect on what the model refuses.

Erasers are fitted at the last prompt token on training quadruples, where the word is independent of the intent. They
act from that token on while the model answers: the best one alone, and all at once (docs/triggers.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from experiments.factors.removal import choose_requests
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import PLAIN, Key, Outcomes
from experiments.triggers.quadruples import MEMBERS, Quadruples, quadruples
from experiments.triggers.results import ERASED, OnsetChange, TriggerErasure
from extract.errors import UserError
from extract.model.edit import Edit, site
from probes.covariance import Eraser, leace, shrunk_covariance
from probes.means import SAME_MEAN, difference_in_means
from probes.statistics.intervals import Estimate
from probes.statistics.metrics import discrimination, enough
from steering.interventions import DeviceCopies, place

MIN_ROWS = 10  # requests of each kind that each part needs
RequestKind = Literal["over_refused", "refused_harmful"]
Rows = Int[np.ndarray, " n_rows"]
PARTS_BY_USE = {"chosen on": ("validation", "calibration"), "tested on": ("test",)}  # of the prompts


@dataclass(frozen=True)
class TriggerEraser:
    """LEACE of the trigger label at one layer (arXiv 2306.03819), in closed form."""

    layer: int
    eraser: Eraser

    def edit(self, where: str) -> Edit:
        """Return the eraser as an edit of a model, from the last prompt token on."""
        arrays = self.eraser.theta[0], self.eraser.covector[0], self.eraser.mean
        theta, covector, mean = (DeviceCopies(values) for values in arrays)

        def erase(stream: Tensor) -> Tensor:
            wide, device = stream.float(), stream.device
            along = (wide - mean.on(device)) @ covector.on(device)
            return (wide - along[..., None] * theta.on(device)).to(stream.dtype)

        digest = hashlib.sha256(np.concatenate(arrays).tobytes()).hexdigest()[:24]
        return place(site(where), self.layer, "last_on", erase, f"LEACE {digest}")


def fit_eraser(
    X: Float[np.ndarray, "n_samples d_model"], y: Bool[np.ndarray, " n_samples"], layer: int
) -> TriggerEraser:
    """Fit LEACE of the label y (the word is present) on activations X."""
    X = X.astype(np.float64)
    return TriggerEraser(layer, leace(difference_in_means(X, y)[None], shrunk_covariance(X), X.mean(axis=0)))


def measure_erasure(loaded: LoadedRun) -> tuple[TriggerErasure, dict[Key, Outcomes]]:
    """Return the effect of erasing the trigger label, and the outcomes of test requests with it erased.

    Raises:
        UserError: it cannot be measured here.
    """
    if not loaded.config.triggers.erased:
        raise UserError("triggers.erased is 0")
    corpus, refused = loaded.corpus, loaded.behaviour.did("refuse")
    train = quadruples(corpus, np.flatnonzero(corpus.within("train")))
    asked: dict[RequestKind, np.ndarray] = {
        "over_refused": corpus.requests & corpus.trigger & refused,
        "refused_harmful": corpus.harmful & refused,
    }
    rows = {
        use: {kind: np.flatnonzero(of & corpus.within(*parts)) for kind, of in asked.items()}
        for use, parts in PARTS_BY_USE.items()
    }
    if lacking := _lacking(loaded, train, rows):
        raise UserError(lacking)
    if not (erasers := _erasers(loaded, train)):
        raise UserError("at no stored layer does the last prompt token differ by trigger word")
    chosen_on, tested_on = (_curves(loaded, erasers, rows[use]) for use in PARTS_BY_USE)
    best = erasers[int(np.argmin(np.subtract(chosen_on["over_refused"], chosen_on["refused_harmful"])))]
    onset_change = OnsetChange(layers=tuple(eraser.layer for eraser in erasers), **tested_on)
    erasure = TriggerErasure(applicable=True, layer=best.layer, auroc=_auroc(loaded, best), onset_change=onset_change)
    return erasure, _outcomes(loaded, {"one_layer": [best], "every_layer": erasers})


def _lacking(loaded: LoadedRun, train: Quadruples, rows: Mapping[str, Mapping[RequestKind, Rows]]) -> str | None:
    """Return what is missing to fit erasers and to measure their effect; None if nothing is."""
    if train.n_groups < MIN_ROWS:
        return f"{train.n_groups} training groups hold all four cells of the 2 x 2; {MIN_ROWS} are needed"
    if WRITE_POSITION not in loaded.store.positions:
        return f"{WRITE_POSITION}, where it is erased, is not stored; see extract.positions"
    names: dict[RequestKind, str] = {"over_refused": "over-refused", "refused_harmful": "refused harmful"}
    for use, kinds in rows.items():
        for kind, places in kinds.items():
            if len(places) < MIN_ROWS:
                return f"only {len(places)} {names[kind]} requests in the part it is {use}; {MIN_ROWS} are needed"
    return context_onsets(loaded, "wording").lacking("refuse")


def _erasers(inputs: RunInputs, train: Quadruples) -> list[TriggerEraser]:
    """Fit one at each layer on the cell means of each group, so that the word is independent of the intent."""
    erasers, y = [], np.tile([trigger for trigger, _ in MEMBERS], train.n_groups)
    for layer in inputs.store.layers:
        X = train.cell_means(inputs.store.read(layer, WRITE_POSITION)[train.rows]).reshape(len(y), -1)
        if np.linalg.norm(difference_in_means(X, y)) > SAME_MEAN * np.abs(X).max():  # not a template token of layer 0
            erasers.append(fit_eraser(X, y, layer))
    return erasers


def _curves(
    loaded: LoadedRun, erasers: Sequence[TriggerEraser], rows: Mapping[RequestKind, Rows]
) -> dict[RequestKind, tuple[float, ...]]:
    """Return the mean change of the refusal's onset log-odds by layer, of each kind of request."""
    trials = [[], *([eraser.edit(loaded.store.site)] for eraser in erasers)]
    curves: dict[RequestKind, tuple[float, ...]] = {}
    for kind, of_kind in rows.items():
        chosen = choose_requests(loaded.corpus, of_kind, loaded.config.seed, loaded.config.triggers.erased)
        scorer = OnsetScorer(loaded.model, [loaded.rendered[row] for row in chosen], context_onsets(loaded, "wording"))
        scores = scorer.log_odds_each(trials)["refuse"]
        curves[kind] = tuple(float(change) for change in (scores[1:] - scores[0]).mean(axis=1))
    return curves


def _outcomes(loaded: LoadedRun, ways: Mapping[str, Sequence[TriggerEraser]]) -> dict[Key, Outcomes]:
    """Answer test requests with each set of erasers."""
    corpus = loaded.corpus
    asked = np.flatnonzero((corpus.harmful | (corpus.requests & corpus.trigger)) & corpus.within("test"))
    judged = np.array([action is not None for action in loaded.behaviour.actions])
    asked = choose_requests(corpus, asked[judged[asked]], loaded.config.seed)
    edits = {(PLAIN, ERASED[way]): [each.edit(loaded.store.site) for each in erasers] for way, erasers in ways.items()}
    with loaded.reporter.task("answering with the trigger erased", len(edits) * len(asked)) as advance:
        return loaded.completer.outcomes(asked, edits, advance)


def _auroc(inputs: RunInputs, eraser: TriggerEraser) -> dict[Literal["before", "after"], Estimate]:
    """Return the AUROC of the word on test requests, before and after, by directions fitted on held-out rows."""
    corpus, y = inputs.corpus, inputs.corpus.trigger
    fit, test = (quadruples(corpus, np.flatnonzero(corpus.within(*parts))).rows for parts in PARTS_BY_USE.values())
    if len(fit) == 0 or not enough(int(y[test].sum()), int((~y[test]).sum())):
        return {}
    X, erase = inputs.store.read(eraser.layer, WRITE_POSITION).astype(np.float64), eraser.eraser

    def auroc(a: np.ndarray, b: np.ndarray) -> Estimate:
        return discrimination(y[test], b @ difference_in_means(a, y[fit]), corpus.groups[test]).auroc

    return {"before": auroc(X[fit], X[test]), "after": auroc(erase(X[fit]), erase(X[test]))}
