"""False positive rate of the verdict on elicited behaviour: behaviour labels are shuffled before fitting (shuffles.py).

Those of plain refusals and those of abstentions under the line; directions are chosen, ablated in the three cells and
judged as in a run. What is elicited is not shuffled: a line that elicits nothing leads to no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.grading.shuffles import LIGHTER, MAX_DECLINERS, N_NULL, shuffled, shuffled_direction
from experiments.dissociation.elicited_judge import CELLS, agreed, judge_cells
from experiments.dissociation.elicited_measure import CellEffects, CellKey, RunCondition
from experiments.dissociation.onset_null import NullDirectionSampler, that_miss_rules
from experiments.dissociation.results import NullRecord
from experiments.dissociation.verdict import Effect
from experiments.elicited.results import Elicitation
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind, write_samples
from experiments.run.config import load_config
from extract.progress import Reporter
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from probes.statistics.sequential import DrawingRule
from scoring.actions import OPENED


@dataclass(frozen=True)
class ElicitedShuffler:
    """A finished run that elicited abstentions, and whose behaviour labels are shuffled."""

    effects: CellEffects
    clustered: bool
    null: Mapping[tuple[Kind, CellKey], np.ndarray]  # of one shuffle, as in `LabelShuffler`

    def verdict(self, seed: int) -> str:
        """Return the verdict after shuffling, fitting, selecting and ablating."""
        rng, by_kind = named_rng(seed, "shuffled elicited behaviour", self.clustered), dict[Kind, Direction]()
        conditions = {condition.name: condition for condition in self.effects.conditions}
        for kind, own in zip(KINDS, self.effects.conditions, strict=True):
            found = shuffled_direction(own.loaded, kind, own.onsets, rng, clustered=self.clustered)
            if found is None:
                return "not_applicable"
            by_kind[kind] = found
        config = self.effects.conditions[0].loaded.config.dissociate
        effects, groups = dict[tuple[Kind, CellKey], Effect](), dict[CellKey, int]()
        for kind, direction in by_kind.items():
            falls = self.effects.falls(kind, [direction])
            for name, behaviour in CELLS:
                cell, here = (name, behaviour), conditions[name]
                rows, rule = here.decliners(behaviour)[:MAX_DECLINERS], DrawingRule(N_NULL, config.alpha)
                edits = {"": here.edits(kind, direction, behaviour)}
                stopped = here.loaded.completer.outcomes(rows, edits)[""].hits(OPENED)
                null = NullRecord.of(float(falls[cell][0]), self.null[kind, cell], rule=rule)
                of_rows = here.loaded.corpus.groups_among(rows)
                effects[kind, cell] = Effect(stopped, *null.tested(), of_rows)
                groups[cell] = len(np.unique(of_rows))
        missing = that_miss_rules(by_kind)
        judged = judge_cells(effects, groups, *missing, margin=config.margin, alpha=config.alpha)
        return agreed(*(of.verdict for of in judged.values()))


def open_elicited(directory: Path, *, clustered: bool) -> ElicitedShuffler | None:
    """Open a finished run with faster settings, to shuffle its labels; None if nothing was elicited."""
    config = load_config(directory / "config.yaml", LIGHTER)
    loaded, found = (
        LoadedRun(config, directory, Reporter(quiet=True)),
        Elicitation.read(directory / "stages/elicit.json"),
    )
    if not found.elicited:
        return None
    effects = CellEffects.of((RunCondition.plain(loaded), RunCondition.of_line(loaded, found)))
    rng, null = named_rng(config.seed, "null of elicited shuffles", clustered), dict[tuple[Kind, CellKey], np.ndarray]()
    for kind, own in zip(KINDS, effects.conditions, strict=True):
        samples = write_samples(own.loaded.behaviour, kind)
        if samples is None:
            return None
        labelled = replace(samples, declined=shuffled(samples, rng, clustered=clustered))
        drawn = NullDirectionSampler(own.loaded, kind, own.onsets, labelled).draw(rng, N_NULL)
        null |= {(kind, cell): falls for cell, falls in effects.falls(kind, drawn).items()}
    return ElicitedShuffler(effects, clustered, null)


def elicited_verdicts(directory: Path, clustered: bool, seeds: range) -> list[str]:
    """Return the verdict of each shuffle; none where no abstentions were elicited, so that no labels are shuffled."""
    shuffler = open_elicited(directory, clustered=clustered)
    return [] if shuffler is None else [shuffler.verdict(seed) for seed in seeds]
