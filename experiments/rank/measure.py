"""The rank of each way of declining on a model: the search, and the growth of its effect on held-out prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from experiments.probing.selection import FLOOR
from experiments.probing.stage import context_onsets
from experiments.probing.write_directions import write_layers
from experiments.rank.results import Growth, RankEffect, RankEstimate, Ranks
from experiments.rank.search import HELD_OUT, Ablatable, Basis, Part, SearchedDirections, SpanOutcomes, Streams, search
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.behaviour import ACTION_OF, KINDS, Kind, WriteSamples, write_samples
from experiments.run.config import set_at
from experiments.run.corpus import Corpus
from extract.model.edit import Edit, Site, site
from extract.progress import Advance
from probes.direction import Direction, Subspace
from probes.statistics.intervals import effective_groups, tango
from probes.statistics.seeds import named_rng
from scoring.actions import OPENED
from scoring.rates import grouped_rate
from steering.ablation import subspace_ablation
from steering.direction_file import save_directions

DIRECTIONS = "rank_directions.safetensors"
MIN_VALIDATION = 10  # validation decliners that choose between candidates


def measure_growth(model: Ablatable, searched: SearchedDirections, margin: float, alpha: float) -> Growth:
    """Ablate the first k directions for each k, on validation and test prompts.

    The best number is chosen on validation prompts. The numbers below it are tested in order and the first that is not
    rejected is the rank, so no correction for their number is needed. A rank above the true one is reported with a
    probability below alpha: where the true growth equals the margin, in 1 to 4 % of simulations with 17 to 200
    decliners at alpha 5 %.
    """

    def stopped(part: Part, k: int) -> Bool[np.ndarray, " decliners"]:
        n = len(model.groups(part))
        return model.outcomes(part, searched.basis[:k], np.arange(n)).stopped if k else np.zeros(n, dtype=bool)

    validation, test = ([stopped(part, k) for k in range(len(searched.basis) + 1)] for part in HELD_OUT)
    best = int(np.argmax([each.mean() for each in validation]))  # the least such number
    return judge_growth(test, best, model.groups("test"), margin, alpha)


def judge_growth(
    stopped: Sequence[Bool[np.ndarray, " decliners"]],
    best: int,
    groups: Shaped[np.ndarray, " decliners"],
    margin: float,
    alpha: float,
) -> Growth:
    """Return the growth and the rank from what stops under the first 0, 1, … directions."""
    n = effective_groups(groups)
    beyond = [tango(stopped[best], each, n, alpha) for each in stopped]
    rank = next(k for k in range(best + 1) if k == best or beyond[k].low <= margin)
    effects = [
        RankEffect(k=k, stopped=grouped_rate(each, groups, alpha), more=beyond[k].counted(len(groups), groups))
        for k, each in enumerate(stopped)
    ]
    settled = beyond[rank].high < margin or rank == best
    return Growth(rank=rank, settled=settled, best=best, effects=tuple(effects))


def measure_ranks(loaded: LoadedRun, directions: Mapping[Kind, Direction], absent: Mapping[Kind, str]) -> None:
    """Search the directions of each way of declining; `absent` says why one cannot be tested."""
    measured = {kind: _measure(loaded, kind, directions.get(kind), absent.get(kind, "")) for kind in KINDS}
    save_directions([one for _, several in measured.values() for one in several], loaded.file(DIRECTIONS))
    Ranks(**{kind: estimate for kind, (estimate, _) in measured.items()}).write(loaded.file("stages/rank.json"))


def _measure(
    loaded: LoadedRun, kind: Kind, direction: Direction | None, absent: str
) -> tuple[RankEstimate, list[Direction]]:
    samples, n = write_samples(loaded.behaviour, kind), len(loaded.behaviour.decliners(kind, "validation"))
    config, wanted = loaded.config.dissociate, loaded.config.dissociate.rank
    settings: dict[str, Any] = {"margin": config.margin, "alpha": config.alpha, "variant": config.variant.name}
    few = f"{n} validation prompts are declined that way, {MIN_VALIDATION} are needed to choose directions"
    if absent or direction is None or samples is None or n < MIN_VALIDATION:
        missing = direction is None or samples is None
        lacking = absent or (f"there is no {kind} write direction" if missing else f"{few}; give more prompts")
        return RankEstimate(rank=None, reason=lacking, **settings), []
    with loaded.reporter.task(f"directions of declining ({kind})", None) as advance:
        model = AblatedModel(loaded, kind, direction, samples, advance)
        searched = search(model, direction.vector, config.margin, config.alpha, None if wanted == "auto" else wanted)
        growth, groups = measure_growth(model, searched, config.margin, config.alpha), model.groups("test")
        alone = model.outcomes("test", direction.vector[None], np.arange(len(groups))).stopped
    estimate = RankEstimate(
        **dict(growth),
        **settings,
        reason=searched.why_stopped,
        write_direction=grouped_rate(alone, groups, config.alpha),
        fits=searched.fits,
    )
    return estimate, replace(model.subspace(searched.basis), name=kind).directions


# -- a model whose decliners are ablated in subspaces: outcomes by generation, streams and onset scores ---------------


class AblatedModel:
    """One way of declining of a model, for `search`.

    Decliners are those of the verdict; in the training part also those that the write direction was fitted on, which
    may be of another label. They are compared with the answered samples of the write direction, and on validation
    prompts with the answered prompts of the same strata.
    """

    def __init__(
        self, loaded: LoadedRun, kind: Kind, direction: Direction, samples: WriteSamples, advance: Advance
    ) -> None:
        self.layer, self._kind, self._advance = direction.locus.layer, kind, advance
        self._loaded, self._direction, self._samples = loaded, direction, samples
        self._variant, behaviour = loaded.config.dissociate.variant, loaded.behaviour
        self._counted = behaviour.actions_of(kind)
        own = np.union1d(samples.rows[samples.declined], behaviour.decliners(kind, "train"))
        held_out = {part: behaviour.decliners(kind, part) for part in HELD_OUT}
        self._decliners = {"train": own, **held_out}
        self._answered = {"train": samples.rows[~samples.declined], "validation": _answered(loaded, samples)}
        rng = named_rng(loaded.config.seed, "rank", kind)
        scored = np.sort(rng.permutation(held_out["validation"])[: loaded.config.dissociate.n_selection])
        self._scorer = OnsetScorer(loaded.model, [loaded.rendered[i] for i in scored], context_onsets(loaded))

    def groups(self, part: Part) -> Shaped[np.ndarray, " decliners"]:
        """Return the group of each decliner of a part."""
        return self._corpus.groups_among(self._decliners[part])

    def outcomes(self, part: Part, basis: Basis, among: Int[np.ndarray, " n"]) -> SpanOutcomes:
        """Generate under the ablation; a pivot or gibberish neither stopped nor still declines."""
        edits, rows = {"": self._edits(basis)}, self._decliners[part][among]
        done = self._loaded.completer.outcomes(rows, edits, self._advance)[""]
        return SpanOutcomes(done.hits(OPENED), done.hits(self._counted))

    def streams(self, part: Part, basis: Basis) -> list[Streams]:
        """Return the streams at the write position under the ablation, at the write layer.

        Where all later layers are ablated, also at each of those where a direction may be written: a copy of the
        decision that arises there is found there.
        """
        rows = np.concatenate([self._decliners[part], self._answered[part]])
        declined = np.arange(len(rows)) < len(self._decliners[part])
        strata = self._corpus.strata[rows] if self._samples.within_label else np.full(len(rows), "all", dtype=object)
        return [Streams(layer, X, declined, strata) for layer, X in self._read(rows, basis).items()]

    def scores(self, bases: Sequence[Basis]) -> Float[np.ndarray, " bases"]:
        """Return the mean onset log-odds of validation decliners, floored as in the selection of write directions."""
        log_odds = self._scorer.log_odds_each([self._edits(basis) for basis in bases])[ACTION_OF[self._kind]]
        return np.nan_to_num(np.maximum(log_odds, FLOOR).mean(axis=1), nan=np.inf)

    def subspace(self, basis: Basis) -> Subspace:
        """Return a basis with the training samples' class means; the write direction alone keeps its own."""
        direction = self._direction
        if len(basis) == 1 and np.allclose(basis[0], direction.vector, atol=1e-6):
            return Subspace.of(direction)
        own, *later = self._written_layers()
        positive, negative = self._means(own, basis)
        return Subspace(
            name=f"{self._kind}_subspace",
            basis=basis.astype(np.float32),
            locus=direction.locus,
            mean_positive=positive,
            mean_negative=negative,
            later_means={layer: self._means(layer, basis) for layer in later},
        )

    @property
    def _corpus(self) -> Corpus:
        return self._loaded.corpus

    def _edits(self, basis: Basis) -> list[Edit]:
        return subspace_ablation(self.subspace(basis), self._variant) if len(basis) else []

    def _written_layers(self) -> list[int]:
        return list(
            range(self.layer, self._loaded.model.n_layers if self._variant.layers == "later" else self.layer + 1)
        )

    def _means(self, layer: int, basis: Basis) -> tuple[np.ndarray, np.ndarray]:
        along = (
            self._loaded.write_activations(layer, set_at(self._direction.locus.position))[self._samples.rows].astype(
                np.float64
            )
            @ basis.T
        )
        return along[self._samples.declined].mean(axis=0), along[~self._samples.declined].mean(axis=0)

    def _read(self, rows: Int[np.ndarray, " rows"], basis: Basis) -> dict[int, Float[np.ndarray, "rows d_model"]]:
        """Return the stream of each row at each candidate layer; at the write layer alone it is already extracted."""
        written = self._written_layers()
        if len(written) == 1:  # the search projects the basis out, as the ablation does there
            return {
                self.layer: self._loaded.write_activations(self.layer, set_at(self._direction.locus.position))[rows]
            }
        deepest = write_layers(self._loaded.model.n_layers, self._loaded.config.dissociate.deepest)
        layers = [layer for layer in written if layer == self.layer or layer in deepest]
        return _streams_under(self._loaded, rows, self._edits(basis), layers, site(self._direction.locus.site))


def _streams_under(
    loaded: LoadedRun, rows: np.ndarray, edits: Sequence[Edit], layers: Sequence[int], where: Site
) -> dict[int, np.ndarray]:
    """Return the stream at the last prompt token of each row under edits, by layer."""
    model, size = loaded.model, loaded.config.generate.batch_size
    parts: dict[int, list[np.ndarray]] = {layer: [] for layer in layers}

    def keep(layer: int, stream: Tensor) -> None:
        parts[layer].append(stream[:, -1].to(torch.float32).cpu().numpy())

    for start in range(0, len(rows), size):
        batch = model.batch([loaded.rendered[i] for i in rows[start : start + size]])
        with model.editing(edits):
            model.capture(batch, where, layers, keep)
    return {layer: np.concatenate(of_layer) for layer, of_layer in parts.items()}


def _answered(loaded: LoadedRun, samples: WriteSamples) -> Int[np.ndarray, " rows"]:
    """Return answered validation prompts of the training samples' strata, or answered benign ones if there are none."""
    behaviour, corpus = loaded.behaviour, loaded.corpus
    alike = np.isin(corpus.strata, samples.strata) & corpus.within("validation") & behaviour.answered
    return np.flatnonzero(alike) if samples.within_label and alike.any() else behaviour.answered_benign("validation")
