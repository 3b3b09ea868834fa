"""False positive rate of the dissociation verdict: behaviour labels are shuffled before fitting.

The model and its mechanisms are unchanged; only the labels of which completions are declined are shuffled before write
directions are fitted. Selection, ablation, generation, the null and the rules are as usual. Labels are shuffled prompt
by prompt within strata, or redrawn for whole groups (`clustered`): all prompts of a group are then declined or none,
for no reason that the stream holds. The null permutes labels by the run's own function, which the shuffles do not use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from experiments.dissociation.applicability import DissociationSetup, find_setup
from experiments.dissociation.measure import onset_effects
from experiments.dissociation.new_thoughts import NewThoughts
from experiments.dissociation.onset_null import NullDirectionSampler, OnsetEffects, that_miss_rules
from experiments.dissociation.results import NullRecord
from experiments.dissociation.verdict import Effect, judge_dissociation
from experiments.dissociation.verdict_rules import EffectKey
from experiments.probing.stage import context_onsets, locus_selection, validation_of, write_fitter
from experiments.responses.batched_edits import Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets
from experiments.run.basis import chosen_basis
from experiments.run.behaviour import KINDS, Behaviour, Kind, WriteSamples, write_samples
from experiments.run.config import load_config
from experiments.run.corpus import Corpus
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from probes.statistics.sequential import DrawingRule
from scoring.actions import OPENED
from steering.ablation import ablation

LIGHTER = ("dissociate.n_selection=12", "dissociate.positions=[post_last]")
THOUGHT = "dissociate.positions=[post_last, think_30, think_end]"  # of a model that thinks, in place of the last
N_NULL = 99  # directions of the null
N_NULL_THOUGHT = 39  # of a model that thinks
MAX_DECLINERS = 60  # decliners of each behaviour for which responses are generated


@dataclass(frozen=True)
class LabelShuffler:
    """A finished run whose behaviour labels are shuffled."""

    loaded: LoadedRun
    setup: DissociationSetup
    effects: OnsetEffects
    clustered: bool
    null: dict[EffectKey, np.ndarray]  # of one shuffle: it depends on how labels are clustered, not on which they are

    def verdict(self, seed: int) -> str:
        """Return the verdict after shuffling, fitting, selecting and ablating."""
        rng, loaded = named_rng(seed, "shuffled behaviour", self.clustered), self.loaded
        config = loaded.config.dissociate
        onsets = context_onsets(loaded)
        found = {kind: shuffled_direction(loaded, kind, onsets, rng, clustered=self.clustered) for kind in KINDS}
        directions = {kind: direction for kind, direction in found.items() if direction is not None}
        trials = [ablation(direction, config.variant) for direction in directions.values()]
        falls = _falls(loaded, self.effects, trials)
        effects: dict[EffectKey, Effect] = {}
        for i, (k, direction) in enumerate(directions.items()):
            for b, rows in self.setup.decliners.items():
                rule = DrawingRule(len(self.null[k, b]), config.alpha)
                null = NullRecord.of(float(falls[b][i]), self.null[k, b], rule=rule)
                groups = loaded.corpus.groups_among(rows)
                effects[k, b] = Effect(self._stopped(direction, rows), *null.tested(), groups)
        n_groups = {b: loaded.corpus.independent_groups(rows) for b, rows in self.setup.decliners.items()}
        unsound, weak = that_miss_rules(directions)
        absent = {kind: "no direction" for kind in KINDS if kind not in directions}
        judged = judge_dissociation(
            effects, n_groups, absent, unsound, weak=weak, margin=config.margin, alpha=config.alpha
        )
        return judged.verdict

    def _stopped(self, direction: Direction, rows: np.ndarray) -> np.ndarray:
        edits = {"": ablation(direction, self.loaded.config.dissociate.variant)}
        return self.loaded.completer.outcomes(rows, edits)[""].hits(OPENED)


def shuffled_direction(
    loaded: LoadedRun, kind: Kind, onsets: Onsets, rng: np.random.Generator, *, clustered: bool
) -> Direction | None:
    """Return the direction that a run fits and chooses after its labels are shuffled."""
    samples, validation = write_samples(loaded.behaviour, kind), validation_of(loaded, kind)
    if samples is None or validation is None:
        return None
    fitted = write_fitter(loaded, kind, samples).fit(shuffled(samples, rng, clustered=clustered))
    best, usable = locus_selection(loaded, kind, onsets, validation).choose_each([fitted])[0]
    misses = best.discarded(loaded.config.dissociate.max_kl)
    return replace(best.direction, provenance={"meets_selection_rules": usable, "misses": misses})


def shuffled(samples: WriteSamples, rng: np.random.Generator, *, clustered: bool) -> Bool[np.ndarray, " samples"]:
    """Return labels that the stream does not hold, about as many declined; `clustered`: one for each group."""
    if not clustered:
        keys = rng.random(len(samples.rows))
        labels = np.zeros(len(keys), dtype=bool)
        for name in np.unique(samples.strata):
            inside = np.flatnonzero(samples.strata == name)
            labels[inside[np.argsort(keys[inside])]] = samples.declined[inside]
        return labels
    _, code, sizes = np.unique(samples.groups, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    declined = np.zeros(len(sizes), dtype=bool)
    declined[order[np.cumsum(sizes[order]) <= samples.declined.sum()]] = True
    return np.asarray(declined[code.reshape(-1)])


def open_run(directory: Path, *, clustered: bool) -> LabelShuffler:
    """Open a finished run with faster settings, to shuffle its labels."""
    config = load_config(directory / "config.yaml", LIGHTER)
    loaded = LoadedRun(config, directory, Reporter(quiet=True))
    if loaded.thinks:
        loaded.config = load_config(directory / "config.yaml", (*LIGHTER, THOUGHT))
    setup = find_setup(loaded)
    effects = onset_effects(loaded, setup)
    if effects is None or setup.absent:
        raise ValueError(f"{directory} has nothing to shuffle: {dict(setup.absent)}")
    few = {kind: rows[:MAX_DECLINERS] for kind, rows in setup.decliners.items()}
    null = _null(loaded, effects, clustered=clustered)
    return LabelShuffler(loaded, replace(setup, decliners=few), effects, clustered, null)


def _null(loaded: LoadedRun, effects: OnsetEffects, *, clustered: bool) -> dict[EffectKey, np.ndarray]:
    """Return the onset effects of directions of permuted labels, the labels of one shuffle being permuted."""
    rng, null = named_rng(loaded.config.seed, "null of shuffles", clustered), dict[EffectKey, np.ndarray]()
    for kind in KINDS:
        samples = write_samples(loaded.behaviour, kind)
        if samples is None:
            continue
        labelled = replace(samples, declined=shuffled(samples, rng, clustered=clustered))
        n = N_NULL_THOUGHT if loaded.thinks else N_NULL
        drawn = NullDirectionSampler(loaded, kind, context_onsets(loaded), labelled).draw(rng, n)
        trials = [ablation(direction, loaded.config.dissociate.variant) for direction in drawn]
        null |= {(kind, b): falls for b, falls in _falls(loaded, effects, trials).items()}
    return null


def _falls(
    loaded: LoadedRun, effects: OnsetEffects, trials: Sequence[Trial]
) -> dict[Kind, Float[np.ndarray, " trials"]]:
    """Return the onset effects of each trial; of a model that thinks, after the thoughts that it has under each."""
    if not loaded.thinks:
        return effects.falls(trials)
    new = NewThoughts(loaded, context_onsets(loaded))
    return {
        b: effects.before[b].mean() - new.after_own(b, rows, trials).mean(axis=1) for b, rows in effects.rows.items()
    }


def passes_with_shuffled_prompt_labels(directory: Path, seeds: range) -> int:
    """Return the number of shuffles of the prompt labels for which a dissociation would be tested.

    It is not tested if behaviour does not follow the labels, so this is an upper bound of false positive verdicts.
    """
    loaded = LoadedRun(load_config(directory / "config.yaml"), directory, Reporter(quiet=True))
    behaviour = loaded.behaviour
    passed = 0
    for seed in seeds:
        order = named_rng(seed, "shuffled prompt labels").permutation(len(loaded.prompts))
        moved = tuple(_relabelled(p, loaded.prompts[i]) for p, i in zip(loaded.prompts, order, strict=True))
        corpus = Corpus(moved, loaded.corpus.groups, loaded.corpus.part)
        loaded.__dict__["corpus"] = corpus
        moved_with = Behaviour(corpus, behaviour.actions, behaviour.correct)
        loaded.__dict__["behaviour"] = replace(moved_with, basis=chosen_basis(moved_with, loaded.config))
        passed += not find_setup(loaded).absent
    return passed


def _relabelled(prompt: Prompt, other: Prompt) -> Prompt:
    return replace(prompt, label=other.label, right_action=other.right_action)
