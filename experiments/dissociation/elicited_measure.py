"""Measures both directions on refusals, and on abstentions and refusals under a line that elicits (elicited_judge.py).

A direction is fitted where its behaviour is: the normative one on the plain run, the epistemic one under the line,
within labels, so that the line cancels. In the other cells it is set to the mean of *their* answered prompts, of that
condition and label: the mean of its own is off the distribution of the streams there, which alone could undo or feign
an effect. They are prompts that it is not fitted on, so that its null, which permutes the labels that it is fitted to,
stays exact: of its own label validation prompts alone, of the other one training prompts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from experiments.dissociation.applicability import find_setup, looks
from experiments.dissociation.onset_null import (
    NullDirectionSampler,
    OnsetEffects,
    in_parts,
    may_break_more,
    sequential_null,
    that_miss_rules,
)
from experiments.dissociation.power import LEAST_POWER, own_effect_power
from experiments.dissociation.results import MeasuredElicited, NullRecord
from experiments.elicited.condition import LINE, Rows, asked_rows, fitted_direction, paired_rows, under
from experiments.elicited.results import Elicitation
from experiments.probing.stage import choose_write, context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets
from experiments.run.behaviour import ACTION_OF, DECLINES, KINDS, MIN_STRATUM, Kind
from experiments.run.corpus import PARTS, TESTED
from experiments.run.outcomes import PLAIN, Key, Outcomes, joined, write_outcomes
from extract.capture_spec import is_generated
from extract.model.edit import Edit
from probes.direction import Direction
from probes.statistics.seeds import named_rng
from probes.statistics.sequential import DrawingRule
from steering.ablation import ablation, addition

FITTED_IN: dict[Kind, str] = {"normative": PLAIN, "epistemic": LINE}  # the condition in which a direction is fitted
ABLATE: dict[Kind, str] = {"normative": "ablate_normative", "epistemic": "ablate_elicited"}  # interventions
ADD, ADD_NULL = "add_elicited", "add_permuted_{}"
CellKey = tuple[str, Kind]  # condition, and behaviour of its decliners
Directions = Mapping[Kind, Direction]


@dataclass(frozen=True)
class RunCondition:
    """The run in one condition: on which direction was fitted in it, and what another one is set to."""

    name: str
    loaded: LoadedRun
    places: Rows  # of its prompts among the run's
    onsets: Onsets

    @classmethod
    def plain(cls, loaded: LoadedRun) -> RunCondition:
        """Return the run as it is."""
        return cls(PLAIN, loaded, np.arange(len(loaded.prompts)), context_onsets(loaded))

    @classmethod
    def of_line(cls, run: LoadedRun, found: Elicitation) -> RunCondition:
        """Return the run under the line that was found."""
        loaded = under(run, found.line)
        if found.direction.available and not found.direction.within_label:
            loaded.behaviour = replace(loaded.behaviour, by_label=frozenset({"epistemic"}))
        return cls(LINE, loaded, asked_rows(run.corpus), context_onsets(loaded))

    @property
    def mirrored(self) -> RunCondition:
        """The same with the two halves of its prompts exchanged."""
        loaded = self.loaded.mirrored
        return replace(self, loaded=loaded, onsets=context_onsets(loaded))

    def decliners(self, kind: Kind) -> Rows:
        """Return the tested prompts that decline as their label asks for."""
        return self.loaded.behaviour.decliners(kind, *TESTED)

    @property
    def turned(self) -> Rows:
        """The tested harmful prompts that are declined in the words of an abstention."""
        corpus = self.loaded.corpus
        return np.flatnonzero(corpus.harmful & self.loaded.behaviour.did("abstain") & corpus.within(*TESTED))

    def edits(self, kind: Kind, direction: Direction, behaviour: Kind) -> list[Edit]:
        """Return the ablation of a kind's direction in the cell of a behaviour."""
        return ablation(self.here(kind, direction, behaviour), self.loaded.config.dissociate.variant)

    def here(self, kind: Kind, direction: Direction, behaviour: Kind) -> Direction:
        """Return a direction with the class means of its cell; see `set_to_answered`.

        Where too few prompts of the cell's label are answered, they are validation prompts of every label.
        """
        if (FITTED_IN[kind], kind) == (self.name, behaviour):
            return direction
        corpus, of = self.loaded.corpus, self.loaded.behaviour
        answered = of.answered & corpus.rated
        parts = ("validation",) if kind == behaviour else ("train", "validation")
        own = answered & of.sides(behaviour)[0] & corpus.within(*parts)
        rows = np.flatnonzero(own if own.sum() >= MIN_STRATUM else answered & corpus.within("validation"))
        return set_to_answered(direction, rows, self.loaded.write_activations)

    def outcomes(self, rows: Rows, named: Mapping[str, Sequence[Edit]], task: str) -> dict[Key, Outcomes]:
        """Return the outcomes of some prompts under named edits, by the run's rows."""
        loaded = self.loaded
        with loaded.reporter.task(task, len(rows) * len(named)) as advance:
            own = loaded.completer.outcomes(rows, named, advance)
        return {(self.name, name): replace(of, rows=self.places[of.rows]) for name, of in own.items()}


def set_to_answered(direction: Direction, answered: Rows, streams: Callable[[int], np.ndarray]) -> Direction:
    """Return a direction whose answering means are those of some prompts; the distance between its means stays.

    `streams`: activations at the write position by layer.
    """

    def means(layer: int, positive: float, negative: float) -> tuple[float, float]:
        here = float(direction.project(streams(layer)[answered]).mean())
        return here + positive - negative, here

    later = {layer: means(layer, *both) for layer, both in direction.later_means.items()}
    positive, negative = means(direction.locus.layer, direction.mean_positive, direction.mean_negative)
    return replace(direction, mean_positive=positive, mean_negative=negative, later_means=later)


def measure_elicited(loaded: LoadedRun) -> None:
    """Write stages/elicited.json and its outcomes; neither depends on the margin and the level of the verdict."""
    elicitation = Elicitation.read(loaded.file("stages/elicit.json"))
    measured, outcomes = MeasuredElicited(reason=elicitation.reason), dict[Key, Outcomes]()
    if elicitation.elicited:
        measured, outcomes = _measured(loaded, elicitation)
    ids = [prompt.id for prompt in loaded.prompts]
    write_outcomes(loaded.file("outcomes.parquet/elicited.parquet"), ids, outcomes)
    measured.write(loaded.file("stages/elicited.json"))


def _measured(loaded: LoadedRun, elicitation: Elicitation) -> tuple[MeasuredElicited, dict[Key, Outcomes]]:
    setup = find_setup(loaded)
    if "normative" in setup.absent:
        return MeasuredElicited(reason=setup.absent["normative"]), {}
    if not setup.absent and loaded.config.elicit.when == "auto":
        return MeasuredElicited(
            reason="by reason the plain model has both kinds of declines, and the verdict is on them"
        ), {}
    conditions = RunCondition.plain(loaded), RunCondition.of_line(loaded, elicitation)
    line, written = conditions[1], elicitation.direction
    if reason := _no_power(line):
        return MeasuredElicited(reason=f"under the line {reason}"), {}
    if not written.available:
        return MeasuredElicited(reason=f"no direction of the elicited abstentions: {written.reason}"), {}
    directions: Directions = {
        "normative": setup.directions["normative"],
        "epistemic": fitted_direction(line.loaded),
    }
    if any(is_generated(direction.locus.position) for direction in directions.values()):
        return MeasuredElicited(reason="a direction is of the thought, in which prompts under a line are not read"), {}
    outcomes = [_ablated(conditions, directions)]
    other = _other_half(conditions, directions)
    null, drawn = _nulls(conditions, directions)
    outcomes += [*([_ablated(*other)] if other else []), _added(conditions[0], directions["epistemic"], drawn)]
    unsound, weak = that_miss_rules(directions, *([other[1]] if other else []))
    measured = MeasuredElicited(parts=PARTS if other else TESTED, unsound=unsound, weak=weak, null=null)
    return measured, joined(outcomes)


def _no_power(line: RunCondition) -> str:
    """Return why a budgeted run does not begin; empty if it does."""
    config, corpus = line.loaded.config, line.loaded.corpus
    n = corpus.independent_groups(line.loaded.behaviour.decliners("epistemic", *PARTS))
    power = own_effect_power(config.dissociate, n)
    if config.budget is None or power >= LEAST_POWER:
        return ""
    return f"{n} independent abstentions show an own effect with a power of {power:.0%}, so none is measured"


# -- ablations ---------------------------------------------------------------------------------------------------------


def _ablated(conditions: Sequence[RunCondition], directions: Directions) -> dict[Key, Outcomes]:
    """Ablate directions on all that is declined in each condition; what the normative one does plainly is known."""
    plain, line = conditions
    declined: list[tuple[RunCondition, Kind, Rows]] = [
        (plain, "normative", plain.decliners("normative")),
        (line, "normative", np.union1d(line.decliners("normative"), line.turned)),
        (line, "epistemic", line.decliners("epistemic")),
    ]
    done = list[dict[Key, Outcomes]]()
    for condition, behaviour, rows in declined:
        if not len(rows):
            continue
        named = {
            ABLATE[kind]: condition.edits(kind, direction, behaviour)
            for kind, direction in directions.items()
            if condition is line or kind == "epistemic"
        }
        done.append(condition.outcomes(rows, named, f"{DECLINES[behaviour]} ({condition.name}), directions ablated"))
    return joined(done)


def _other_half(
    conditions: Sequence[RunCondition], directions: Directions
) -> tuple[list[RunCondition], dict[Kind, Direction]] | None:
    """Return the conditions with halves exchanged, and the directions of these; None if they may break the model."""
    mirrored, chosen = [condition.mirrored for condition in conditions], dict[Kind, Direction]()
    for kind, condition in zip(KINDS, mirrored, strict=True):
        screened = bool(directions[kind].provenance.get("screened"))
        if (direction := choose_write(condition.loaded, kind, condition.onsets, screened).chosen) is None:
            return None
        chosen[kind] = direction
    return None if may_break_more(chosen, directions) else (mirrored, chosen)


# -- permuted labels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellEffects:
    """Measures how much directions lower the onset log-odds of some decliners of every cell."""

    conditions: Sequence[RunCondition]
    scorers: Mapping[CellKey, OnsetEffects]

    @classmethod
    def of(cls, conditions: Sequence[RunCondition]) -> CellEffects:
        """Prepare at most `n_onset` tested decliners of each cell, where onset prefixes are known."""
        return cls(conditions, {(c.name, b): scorer for c in conditions for b, scorer in _scorers(c)})

    def falls(self, kind: Kind, tried: Sequence[Direction]) -> dict[CellKey, Float[np.ndarray, " directions"]]:
        """Return the mean fall of each cell's log-odds under each direction of a kind, in nats."""
        named = {condition.name: condition for condition in self.conditions}
        return {
            (name, b): scorer.falls([named[name].edits(kind, direction, b) for direction in tried])[b]
            for (name, b), scorer in self.scorers.items()
        }


def _scorers(condition: RunCondition) -> Iterator[tuple[Kind, OnsetEffects]]:
    loaded, rng = condition.loaded, named_rng(condition.loaded.config.seed, "onset decliners", condition.name)
    behaviours: tuple[Kind, ...] = KINDS if condition.name == LINE else ("normative",)
    rows = {b: condition.decliners(b) for b in behaviours if not condition.onsets.lacking(ACTION_OF[b])}
    most = loaded.config.dissociate.n_onset
    for b, own in rows.items():
        if len(own):
            some = np.sort(rng.permutation(own)[:most])
            yield b, OnsetEffects(loaded.model, loaded.rendered, {b: some}, condition.onsets)


def _nulls(
    conditions: Sequence[RunCondition], directions: Directions
) -> tuple[dict[Kind, dict[str, dict[Kind, NullRecord]]], list[Direction]]:
    """Measure each direction's onset effect in every cell, and that of directions fitted on permuted labels.

    Returns the nulls by direction, condition and behaviour, and the drawn epistemic directions.
    """
    plain, effects = conditions[0].loaded, CellEffects.of(conditions)
    config, rng = plain.config.dissociate, named_rng(plain.config.seed, "permuted-label null under a line")
    rule = DrawingRule.at_look(looks(plain), config.n_null(thinks=plain.thinks), config.alpha)
    null: dict[Kind, dict[str, dict[Kind, NullRecord]]] = {}
    with plain.reporter.task("permuted-label null under the line", rule.n * len(directions)) as advance:
        for (kind, real), own in zip(directions.items(), conditions, strict=True):
            screened = bool(real.provenance.get("screened"))
            sampler = NullDirectionSampler(own.loaded, kind, own.onsets, screened=screened)
            observed = {cell: float(fall[0]) for cell, fall in effects.falls(kind, [real]).items()}
            parts = map(sampler.of_labellings, in_parts(sampler.samples.permutations(rng, rule.n)))
            measured = enumerate((part, effects.falls(kind, part)) for part in parts)
            drawn, of = list[Direction](), dict[CellKey, NullRecord]()
            for part, of in sequential_null(measured, observed, sampler.samples.n_labellings, rule):
                advance(len(part))
                drawn += part
                if all(record.settled for record in of.values()):
                    break
            advance(rule.n - len(drawn), remembered=True)
            null[kind] = {c.name: {b: record for (name, b), record in of.items() if name == c.name} for c in conditions}
    return null, drawn


# -- transfer: added without the line ----------------------------------------------------------------------------------


def _added(plain: RunCondition, direction: Direction, drawn: Sequence[Direction]) -> dict[Key, Outcomes]:
    """Add the epistemic direction, and permuted ones by as much, to plain uncertain prompts and their twins."""
    settings, variant = plain.loaded.config.elicit, plain.loaded.config.dissociate.variant
    rng, gap = named_rng(plain.loaded.config.seed, "transfer"), direction.mean_positive - direction.mean_negative
    rows = paired_rows(plain.loaded, settings.n_transfer, rng, *TESTED)
    null = [replace(each, mean_positive=each.mean_negative + gap) for each in drawn[: settings.n_null_transfer]]
    named = {ADD: addition(direction, variant)}
    named |= {ADD_NULL.format(i): addition(each, variant) for i, each in enumerate(null)}
    return plain.outcomes(rows, named, "directions added without the line")
