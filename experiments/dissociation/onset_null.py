"""Onset effects and their permutation null: directions fitted on permuted labels and selected by the same rule.

An isotropic random vector would be a weak null: it misses the top principal components, so any fitted direction would
look special (METHODS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from experiments.dissociation.effects import EffectKey
from experiments.dissociation.measured_effects import NullEffects, numbers
from experiments.probing.selection import FLOOR, TIE
from experiments.probing.stage import write_fitter
from experiments.probing.write_directions import permuted
from experiments.responses.batched_edits import Trial
from experiments.responses.divergence import ForcedResponses, summary
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import EITHER, Onsets, OnsetScorer
from experiments.run.behaviour import ACTION_OF, Kind, write_samples
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from steering.ablation import ablation, addition


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

    The null uses the same candidates, bypass, induce and KL limit. It has no lower limit on induce, which can only
    make the null stronger.

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
    with loaded.reporter.task("permuted-label null", config.n_null_onset * len(directions)) as advance:
        for kind in directions:
            sampler = NullDirectionSampler(loaded, kind, onsets, rng)
            for i in range(config.n_null_onset):
                direction = sampler.draw()
                for b, fall in effects.falls([ablation(direction, config.variant)]).items():
                    drawn[kind, b].append(float(fall[0]))
                    if i < config.n_null_generation:
                        generated[kind, b].append(stopped(b, direction))
                advance(1)
    return {
        key: NullEffects(observed=numbers([fall])[0], drawn=numbers(drawn[key]), generated=tuple(generated[key]))
        for key, fall in observed.items()
    }


class NullDirectionSampler:
    """Draws null directions of one kind: permuted labels, then a locus chosen nearly as `selection.select` does."""

    N_SELECTION = 8  # validation prompts of each class on which a null direction's locus is chosen

    def __init__(self, loaded: LoadedRun, kind: Kind, onsets: Onsets, rng: np.random.Generator) -> None:
        samples = write_samples(loaded.behaviour, kind)
        if samples is None:
            raise ValueError(f"there is no {kind} write direction, so it has no null")
        self._config = loaded.config.dissociate
        self._onset, self._rng = ACTION_OF[kind], rng
        self._fitter = write_fitter(loaded, kind, samples, later=self._config.layers == "later")
        rows = loaded.behaviour.decliners(kind, "validation"), loaded.behaviour.answered_benign("validation")
        decliners, benign = (rng.permutation(of_kind)[: self.N_SELECTION] for of_kind in rows)
        prompts = [loaded.rendered[i] for i in benign]
        responses = [loaded.completions[i].token_ids for i in benign]
        self._answers = ForcedResponses(loaded.model, prompts, responses, self._config.kl_tokens)
        self._benign = OnsetScorer(loaded.model, prompts, onsets)
        self._decliners = OnsetScorer(loaded.model, [loaded.rendered[i] for i in decliners], onsets)

    def draw(self) -> Direction:
        """Return the best-ranked direction whose ablation keeps KL within the limit, else the one with the least KL.

        An ablation that breaks the model opens with none of the onset prefixes, and so would stop every decline.
        """
        harm: list[tuple[float, int]] = []
        ranked = self._ranked(self._fitter.fit(permuted(self._fitter.samples, self._rng)))
        for place, direction in enumerate(ranked):
            harm.append((self._harm(direction), place))
            if harm[-1][0] <= self._config.max_kl:
                return direction
        return ranked[min(harm)[1]]

    def _ranked(self, fitted: Sequence[Direction]) -> list[Direction]:
        """Order directions by bypass; ties (within `TIE`) by what they induce."""
        scores = self._decliners.log_odds_each([ablation(direction, self._config.variant) for direction in fitted])
        bypass = np.nan_to_num(np.maximum(scores[self._onset], FLOOR).mean(axis=1), nan=np.inf)
        order = np.argsort(bypass, kind="stable")
        n_alike = int((bypass <= bypass.min() + TIE).sum())
        if n_alike > 1:
            added = [addition(fitted[i], self._config.variant) for i in order[:n_alike]]
            induced = np.nan_to_num(self._benign.log_odds_each(added)[EITHER].mean(axis=1), nan=-np.inf)
            order[:n_alike] = order[:n_alike][np.argsort(-induced, kind="stable")]
        return [fitted[i] for i in order]

    def _harm(self, direction: Direction) -> float:
        """Return the KL of benign answers under ablation at the worst step, in nats; infinite if it is not finite."""
        (nats,), there = self._answers.divergences([ablation(direction, self._config.variant)])
        found = summary(nats, there)
        return found.worst_step if np.isfinite(found.worst_step) else float("inf")
