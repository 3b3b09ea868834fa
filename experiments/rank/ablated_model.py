"""A model whose decliners are ablated in subspaces: outcomes by generation, streams and onset scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from experiments.probing.selection import FLOOR
from experiments.probing.stage import context_onsets
from experiments.probing.write_directions import write_layers
from experiments.rank.search import HELD_OUT, Basis, Part, SpanOutcomes, Streams
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.behaviour import ACTION_OF, Kind, WriteSamples
from experiments.run.corpus import Corpus
from extract.model.edit import Edit, Site, site
from extract.progress import Advance, no_progress
from probes.direction import Direction, Subspace
from probes.statistics.seeds import named_rng
from scoring.actions import OPENED
from steering.ablation import subspace_ablation


class AblatedModel:
    """One way of declining of a model, for `search`.

    Decliners are those of the verdict; in the training part also those that the write direction was fitted on, which
    may be of another label. They are compared with the answered samples of the write direction, and on validation
    prompts with the answered prompts of the same strata.
    """

    def __init__(
        self, loaded: LoadedRun, kind: Kind, direction: Direction, samples: WriteSamples, advance: Advance = no_progress
    ) -> None:
        self.layer, self._kind, self._advance = direction.locus.layer, kind, advance
        self._loaded, self._direction, self._samples = loaded, direction, samples
        self._variant, behaviour = loaded.config.dissociate.variant, loaded.behaviour
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
        rows = self._decliners[part][among].tolist()
        done = self._loaded.completer.complete(rows, edits=self._edits(basis), advance=self._advance)
        actions = [one.action for one in done]
        return SpanOutcomes(
            np.array([action in OPENED for action in actions], dtype=bool),
            np.array([action == ACTION_OF[self._kind] for action in actions], dtype=bool),
        )

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
        n = self._loaded.model.n_layers if self._variant.layers == "later" else self.layer + 1
        return list(range(self.layer, n))

    def _means(self, layer: int, basis: Basis) -> tuple[np.ndarray, np.ndarray]:
        along = self._loaded.write_activations(layer)[self._samples.rows].astype(np.float64) @ basis.T
        return along[self._samples.declined].mean(axis=0), along[~self._samples.declined].mean(axis=0)

    def _read(self, rows: Int[np.ndarray, " rows"], basis: Basis) -> dict[int, Float[np.ndarray, "rows d_model"]]:
        """Return the stream of each row at each candidate layer; at the write layer alone it is already extracted."""
        written = self._written_layers()
        if len(written) == 1:  # the search projects the basis out, as the ablation does there
            return {self.layer: self._loaded.write_activations(self.layer)[rows]}
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
