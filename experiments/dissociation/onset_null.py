"""Onset effects and their permutation null: directions fitted on permuted labels.

Labels are permuted with whole groups of prompts. Each draw has the same candidates as the real direction, and its locus
is chosen by the same rule on the same validation prompts, so under no effect all are exchangeable and p is exact.

An isotropic random vector would be a weak null: it misses the top principal components, so any fitted direction would
look special (METHODS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from experiments.dissociation.effects import EffectKey
from experiments.dissociation.measured_effects import NullEffects, numbers
from experiments.probing.stage import locus_selection, validation_of, write_fitter
from experiments.responses.batched_edits import Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets, OnsetScorer
from experiments.run.behaviour import ACTION_OF, Kind, WriteSamples, write_samples
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from steering.ablation import ablation


class OnsetEffects:
    """Measures how edits change the onset log-odds of fixed decliners, of opening with their own way of declining."""

    def __init__(
        self,
        model: ChatModel,
        rendered: Sequence[Rendered],
        decliners: Mapping[Kind, Int[np.ndarray, " decliners"]],
        onsets: Onsets,
    ) -> None:
        self.rows = dict(decliners)
        self._scorers = {b: OnsetScorer(model, [rendered[i] for i in rows], onsets) for b, rows in decliners.items()}
        self.before = {b: scorer.log_odds()[ACTION_OF[b]] for b, scorer in self._scorers.items()}

    def after(self, trials: Sequence[Trial]) -> dict[Kind, Float[np.ndarray, "trials decliners"]]:
        """Return each behaviour's log-odds under each trial's edits."""
        return {b: scorer.log_odds_each(trials)[ACTION_OF[b]] for b, scorer in self._scorers.items()}

    def falls(self, trials: Sequence[Trial]) -> dict[Kind, Float[np.ndarray, " trials"]]:
        """Return each behaviour's mean fall of the onset log-odds under each trial's edits, in nats."""
        return {b: self.before[b].mean() - after.mean(axis=1) for b, after in self.after(trials).items()}


def permuted_null(
    loaded: LoadedRun,
    directions: Mapping[Kind, Direction],
    effects: OnsetEffects,
    onsets: Onsets,
    stopped: Callable[[Kind, Direction], float],
) -> dict[EffectKey, NullEffects]:
    """Fit directions on permuted behaviour labels, choose their locus by the same rule, and measure the same effect.

    Args:
        stopped: returns the share of a behaviour's decliners that ablating a direction stops, by generation.
    """
    config, rng = loaded.config.dissociate, named_rng(loaded.config.seed, "permuted-label null")
    behaviours = tuple(effects.rows)
    falls = effects.falls([ablation(direction, config.variant) for direction in directions.values()])
    observed: dict[EffectKey, float] = {
        (k, b): float(falls[b][i]) for i, k in enumerate(directions) for b in behaviours
    }
    drawn: dict[EffectKey, list[float]] = {key: [] for key in observed}
    generated: dict[EffectKey, list[float]] = {key: [] for key in observed}
    labellings: dict[Kind, float] = {}
    with loaded.reporter.task("permuted-label null", config.n_null_onset * len(directions)) as advance:
        for kind in directions:
            sampler = NullDirectionSampler(loaded, kind, onsets, rng)
            labellings[kind] = sampler.n_labellings
            for i in range(config.n_null_onset):
                direction = sampler.draw()
                for b, fall in effects.falls([ablation(direction, config.variant)]).items():
                    drawn[kind, b].append(float(fall[0]))
                    if i < config.n_null_generation:
                        generated[kind, b].append(stopped(b, direction))
                advance(1)
    return {
        key: NullEffects(
            observed=numbers([fall])[0],
            drawn=numbers(drawn[key]),
            generated=tuple(generated[key]),
            n_labellings=numbers([labellings[key[0]]])[0],
        )
        for key, fall in observed.items()
    }


class NullDirectionSampler:
    """Draws null directions of one kind: labels permuted with whole groups, then the run's choice of the locus."""

    def __init__(
        self,
        loaded: LoadedRun,
        kind: Kind,
        onsets: Onsets,
        rng: np.random.Generator,
        samples: WriteSamples | None = None,
    ) -> None:
        """Prepare the draws.

        Args:
            samples: whose labels are permuted; None: the run's own.
        """
        samples, validation = samples or write_samples(loaded.behaviour, kind), validation_of(loaded, kind)
        if samples is None or validation is None:
            raise ValueError(f"there is no {kind} write direction, so it has no null")
        self.n_labellings = samples.n_labellings
        self._rng, later = rng, loaded.config.dissociate.layers == "later"
        self._fitter = write_fitter(loaded, kind, samples, later=later)
        self._selection = locus_selection(loaded, kind, onsets, validation)

    def draw(self) -> Direction:
        """Return one null direction."""
        fitted = self._fitter.fit(self._fitter.samples.permuted(self._rng))
        return self._selection.choose(fitted)[0].direction
