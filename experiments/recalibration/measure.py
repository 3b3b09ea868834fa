"""Answers a labelled sample under every outcome of the gates; chooses and certifies thresholds on it.

Half of the sample, by groups, chooses and the other half certifies; reads, directions and calibrations stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.operating_point import CERTIFIED_ON, Targets, choose_thresholds, reachable_costs, reachable_risks
from experiments.dials.results import COUNTED, SteerResult, ThresholdCertificate
from experiments.dials.surface import Surface, risk_of
from experiments.dials.text import LABEL, RISK_NAMES, certified_lines
from experiments.pressure.results import LimitUnderPressure
from experiments.responses.completions import Completer
from experiments.responses.setting import Setting
from experiments.run.behaviour import Kind
from experiments.run.completion_file import is_right
from experiments.run.config import RunConfig
from experiments.run.corpus import Corpus
from extract.capture_spec import CaptureSpec
from extract.errors import UserError
from extract.in_memory import Activations, capture_in_memory
from extract.prompts.prompt import LABELS
from extract.record import Record
from probes.contrast import group_split
from probes.statistics.tradeoffs import candidate_thresholds
from scoring.rates import RATES
from steering.dial import Dial
from steering.writer import ConstantGateWriter

CHOICE = "validation"
LEAST = 5  # prompts of a label in each half, below which a dial keeps its threshold


class Recalibration(Record):
    """The contents of recalibration.json."""

    labels: dict[str, int]
    before: dict[str, LimitUnderPressure]  # the limits of the run at its thresholds, on the whole sample
    thresholds: dict[Kind, float]
    kept: list[Kind]  # dials that keep their threshold: the sample has too few prompts that they should decline
    untested: list[str] = []  # limits of the run that the sample says nothing of
    certificate: ThresholdCertificate


@dataclass(frozen=True)
class Recalibrator:
    """The dials of a run, and the labelled sample with what they read of it."""

    config: RunConfig
    dials: Sequence[Dial]  # the normative one first
    completer: Completer
    corpus: Corpus
    read: Activations

    @classmethod
    def of(cls, config: RunConfig, dials: Sequence[Dial], completer: Completer) -> Recalibrator:
        """Read the sample; UserError: a dial reads no stream, or the sample has no benign prompt in each half."""
        loci = [dial.read for dial in dials if dial.read is not None]
        if len(loci) < len(dials) or len({locus.site for locus in loci}) != 1:
            raise UserError(
                "only dials that read the stream, at one site, can be recalibrated; make them again instead"
            )
        prompts = completer.prompts
        groups, labels = np.arange(len(prompts)), [prompt.label for prompt in prompts]  # see `draw_sample`
        part = group_split(groups, labels, {CHOICE: 0.5, CERTIFIED_ON: 0.5}, config.seed)
        layers, positions = sorted({locus.layer for locus in loci}), sorted({locus.position for locus in loci})
        spec = CaptureSpec(site=loci[0].site, layers=tuple(layers), positions=tuple(positions))
        read = capture_in_memory(completer.model, prompts, completer.rendered, spec, say=completer.say)
        made = cls(config, dials, completer, Corpus(tuple(prompts), groups, part), read)
        if not made._has("benign"):
            raise UserError(f"the sample has fewer than {LEAST} benign requests in each half: label a larger one")
        return made

    def _has(self, label: str) -> bool:
        of_label = self.corpus.labelled(label)
        return min(int((of_label & self.corpus.within(half)).sum()) for half in (CHOICE, CERTIFIED_ON)) >= LEAST

    def _streams(self, dial: Dial) -> Float[np.ndarray, "prompts d_model"]:
        assert dial.read is not None
        return self.read.read(dial.read.layer, dial.read.position)

    def table(self) -> Counterfactuals:
        """Answer every prompt under every outcome of the gates."""
        n, dials = len(self.corpus), self.dials
        outcomes = reachable_outcomes(len(dials), dead_band=self.config.steer.band > 0)
        held = [
            [ConstantGateWriter(dial.writer, gate) for dial, gate in zip(dials, gates, strict=True)]
            for gates in outcomes
        ]
        done = self.completer.complete_each(range(n), [Setting(held=gates) for gates in held])
        right = [[is_right(said, self.corpus.prompts[row]) for row, said in enumerate(own)] for own in done]
        return Counterfactuals(
            tuple(dial.kind for dial in dials),
            outcomes,
            np.stack([dial.probability(self._streams(dial)) for dial in dials]),
            np.array([[said.action for said in own] for own in done], dtype=object).T,
            np.array(right).T,
        )

    def recalibrated(self, certified: ThresholdCertificate | None) -> tuple[Recalibration, list[Dial]]:
        """Return what the run's own thresholds do on the sample, and the dials with thresholds for it."""
        table, corpus, config = self.table(), self.corpus, self.config
        kinds = [dial.kind for dial in self.dials]
        kept = [kind for kind in kinds if not self._has(LABEL[kind])]
        chosen = corpus.within(CHOICE)
        thresholds = [
            np.array([dial.threshold])
            if dial.kind in kept
            else np.union1d(candidate_thresholds(p[chosen], corpus.labelled(LABEL[dial.kind])[chosen]), dial.threshold)
            for dial, p in zip(self.dials, table.probability, strict=True)
        ]
        moved = [kind for kind in kinds if kind not in kept]
        limits = {
            name: limit
            for name, limit in reachable_risks(config.steer.limits, moved).items()
            if name in RATES and self._has(RATES[name][0])
        }
        costs = reachable_costs(config.steer.costs.model_dump(), moved) if config.steer.costs else None
        if not limits and not costs:
            raise UserError(
                f"no limit of the run can be tested: give {LEAST} requests of a label to each half at least"
            )
        surface, nothing = Surface.over(table, thresholds, config.steer.band), np.zeros(len(corpus), dtype=bool)
        on_choice, held_out = (
            {name: risk_of(name, table, corpus, nothing, corpus.within(half)) for name in names}
            for half, names in ((CHOICE, COUNTED), (CERTIFIED_ON, limits or RATES))
        )
        targets = Targets(limits, config.steer.confidence, costs)
        index, certificate = choose_thresholds(surface, on_choice, held_out, corpus, targets, config.seed)
        found = dict(zip(kinds, surface.settings[index].tolist(), strict=True))
        result = Recalibration(
            labels={label: int(corpus.labelled(label).sum()) for label in LABELS},
            before=self._before(table, certified),
            thresholds=found,
            kept=kept,
            untested=[name for name in config.steer.limits if name not in limits],
            certificate=certificate,
        )
        return result, [self._moved(dial, found[dial.kind]) for dial in self.dials]

    def _before(self, table: Counterfactuals, certified: ThresholdCertificate | None) -> dict[str, LimitUnderPressure]:
        surface = Surface.over(table, [[dial.threshold] for dial in self.dials], self.config.steer.band)
        everything, found = np.ones(len(self.corpus), dtype=bool), dict[str, LimitUnderPressure]()
        for name, of_run in certified.risks.items() if certified is not None else ():
            if name not in RATES or of_run.limit is None:
                continue
            risk = risk_of(name, table, self.corpus, ~everything, everything)
            if not len(risk.rows):
                continue
            failed, confidence = surface.failed(risk)[0], self.config.steer.confidence
            found[name] = LimitUnderPressure.counted(failed, of_run.limit, confidence, certified=of_run.certified)
        return found

    def _moved(self, dial: Dial, threshold: float) -> Dial:
        """Return a dial with a threshold for the sample, whose certification half is what a server compares with.

        A server compares first turns. What its answers alarm at stays: the sample has no plain answers.
        """
        first = [all(one["role"] != "assistant" for one in prompt.messages) for prompt in self.corpus.prompts]
        streams, reference = self._streams(dial)[self.corpus.within(CERTIFIED_ON) & np.array(first)], dial.reference
        if reference is not None:
            reference = replace(reference, probability=dial.probability(streams), streams=streams)
        return replace(dial, threshold=threshold, by_category=None, reference=reference)


def certificate_of(run: Path) -> ThresholdCertificate | None:
    """Return the certificate of a run's thresholds; None: it has none."""
    path = run / "stages" / "steer.json"
    return SteerResult.read(path).certified if path.is_file() else None


def lines(result: Recalibration) -> Iterator[str]:
    """Yield whether the run's limits hold on the sample, and the new thresholds with what they certify."""
    for name, limit in result.before.items():
        yield (
            f"At the run's thresholds, {RISK_NAMES[name]} at most {limit.limit:.0%}: {limit.verdict} "
            f"({limit.failures} of {limit.n} failed{f', {limit.unjudged} unjudged' * (limit.unjudged > 0)}: "
            f"{limit.at_least:.0%} to {limit.at_most:.0%}"
            f"{'' if limit.certified else '; the run did not certify it'})."
        )
    for kind in result.kept:
        why = f"fewer than {LEAST} {LABEL[kind]} requests in a half of the sample"
        yield f"The {kind} dial keeps its threshold: {why}."
    if result.untested:
        yield f"Not tested: {', '.join(RISK_NAMES[name] for name in result.untested)}."
    yield from certified_lines({kind: tau for kind, tau in result.thresholds.items()}, result.certificate)
