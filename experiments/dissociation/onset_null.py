"""Onset effects and their permutation null: directions fitted on permuted labels.

Labels are permuted with whole groups of prompts. Each draw has the same candidates as the real direction, and its locus
is chosen by the same rule on the same validation prompts, so under no effect all are exchangeable and p is exact.

An isotropic random vector would be a weak null: it misses the top principal components, so any fitted direction would
look special (METHODS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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

TOGETHER = 20  # null directions that are drawn and measured together


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
        for kind, real in directions.items():
            sampler = NullDirectionSampler(loaded, kind, onsets, rng, screened=bool(real.provenance.get("screened")))
            labellings[kind] = sampler.n_labellings
            left = config.n_null_generation
            for n in batched(config.n_null_onset, TOGETHER):
                null = sampler.draw(n)
                for b, fall in effects.falls([ablation(direction, config.variant) for direction in null]).items():
                    drawn[kind, b] += [float(each) for each in fall]
                    generated[kind, b] += [stopped(b, direction) for direction in null[:left]]
                left = max(0, left - n)
                advance(n)
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
        *,
        screened: bool = False,
    ) -> None:
        """Prepare the draws.

        Args:
            samples: whose labels are permuted; None: the run's own.
            screened: whether only the best candidates by first order are measured, as for the real direction.
        """
        samples, validation = samples or write_samples(loaded.behaviour, kind), validation_of(loaded, kind)
        if samples is None or validation is None:
            raise ValueError(f"there is no {kind} write direction, so it has no null")
        self.n_labellings = samples.n_labellings
        self._rng, later = rng, loaded.config.dissociate.layers == "later"
        self._fitter = write_fitter(loaded, kind, samples, later=later)
        self._selection = locus_selection(loaded, kind, onsets, validation)
        self._screen = self._selection.screen(self._fitter.fit()) if screened else None

    def draw(self, n: int) -> list[Direction]:
        """Return n null directions, chosen in the same forward passes."""
        draws = [self._fitter.fit(self._fitter.samples.permuted(self._rng)) for _ in range(n)]
        return [candidate.direction for candidate, _ in self._selection.choose_each(draws, self._screen)]


def batched(total: int, most: int) -> Iterator[int]:
    """Yield the sizes of batches of at most `most` that make up a total."""
    for start in range(0, total, most):
        yield min(most, total - start)
