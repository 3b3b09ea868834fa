"""Typed results on trigger word against intent: measurements and verdicts."""

from __future__ import annotations

from math import nan
from typing import Literal

from experiments.factors.results import ContextResults, DecisionChange, LastTurnAlone
from extract.record import NotApplicable, Record
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import PValue

NOTABLE = 1.0  # nats: a word with a smaller score is not reported as the cause of a refusal
WITHOUT = "without "  # before a factor's name: the condition of its removal
ERASED = {"one_layer": "erase_trigger", "every_layer": "erase_trigger_everywhere"}  # interventions
TriggerVerdict = Literal["intent_driven", "trigger_driven", "mixed", "not_applicable", "inconclusive"]


class FactorialEffect(Record):
    """The effect of the trigger word, the intent or their interaction on a projection."""

    partial_eta_squared: Estimate
    p: PValue
    shift: float  # in units of the distance between the class means


class LocusEffect(FactorialEffect):
    """An effect on the projection at one locus along one direction."""

    direction: str
    layer: int
    position: str
    effect: str
    n_groups: int


class ProjectionRows(Record):
    """stages/trigger_projection.json: the effects at every locus, or the reason why there are none."""

    rows: tuple[LocusEffect, ...]
    reason: str | None


class DirectionEffects(Record):
    """The effects at a direction's own locus, by name."""

    layer: int
    position: str
    n_groups: int
    effects: dict[str, FactorialEffect]


class Projection(Record):
    """Effects of the trigger word and the intent on the projection on each direction."""

    applicable: Literal[True]
    directions: dict[str, DirectionEffects]


class TransferredProbe(Record):
    """An intent probe fitted with or without trigger words and tested with or without them."""

    layer: int
    position: str
    auroc: float
    auroc_ci: tuple[float, float]
    n: int
    p: PValue
    bag_of_words: float
    beats_bag_of_words: bool


class IntentTransfer(Record):
    """The four intent probes, by name."""

    applicable: Literal[True]
    probes: dict[str, TransferredProbe]


class PairCounts(Record):
    """Minimal pairs that differ in the trigger word: found, flipped by it, left out by reason, and patched."""

    pairs: int
    flipped: int
    left_out: dict[str, int]
    n: int
    n_groups: int


class PatchedLayer(Record):
    """The share of the refusal's onset log-odds that the trigger's tokens carry at one layer."""

    layer: int
    raised: Estimate  # the trigger's residual copied into the prompt without it
    lowered: Estimate  # the other word's residual copied into the prompt with the trigger


class Patching(PairCounts):
    """The patching share by layer."""

    applicable: Literal[True]
    site: str
    layers: tuple[PatchedLayer, ...]


class NotPatched(NotApplicable, PairCounts):
    """The reason why no pair was patched, with the counts."""


class OnsetChange(Record):
    """Mean change of the refusal's onset log-odds by erased layer, in nats."""

    layers: tuple[int, ...]
    over_refused: tuple[float, ...]
    refused_harmful: tuple[float, ...]


class TriggerErasure(Record):
    """Effect of erasing the trigger label; the answers are judged from the outcomes."""

    applicable: Literal[True]
    layer: int
    auroc: dict[Literal["before", "after"], Estimate]  # of the word, on unseen requests
    onset_change: OnsetChange
    one_layer: dict[str, DecisionChange] = {}  # decisions by label, where any could be judged
    every_layer: dict[str, DecisionChange] = {}


class AttributedRequest(Record):
    """A refused request with the score of each word in the log-odds of refusing: a line of attributions.jsonl."""

    id: str
    label: str
    trigger: str | None
    log_odds: float  # nats, of the whole request
    words: tuple[str, ...]
    scores: tuple[float, ...]  # nats, one a word
    tokens: tuple[tuple[int, ...], ...]  # token indices of each word
    top: str | None  # the word with the highest score; None where it is below NOTABLE
    fired_by_trigger: bool | None  # None where the prompt has no trigger


class FiredByTrigger(Record):
    """How often the trigger is the word with the highest score, over groups."""

    fired_by_trigger: Estimate
    by_chance: float
    n: int
    n_groups: int


class TriggerAttribution(Record):
    """Attribution of a run's refusals to words, by label."""

    applicable: Literal[True]
    n: int
    by_label: dict[str, FiredByTrigger | None]
    examples: tuple[AttributedRequest, ...]


class TriggerFindings(Record):
    """Measurements of the trigger word other than behaviour."""

    projection: Projection | NotApplicable | None = None
    transfer: IntentTransfer | NotApplicable | None = None
    patching: Patching | NotPatched | NotApplicable | None = None
    erasure: TriggerErasure | NotApplicable | None = None
    attribution: TriggerAttribution | NotApplicable | None = None


class TriggerMeasures(TriggerFindings):
    """stages/trigger_measures.json: every input of the verdicts except the completions and the outcomes."""

    last_turn: LastTurnAlone
    along: dict[str, tuple[float | None, ...]]  # every request's projection at each direction's own locus, by row


class TriggerShareResult(Record):
    """Verdict: the share of the effect on refusing that is due to the trigger word."""

    verdict: TriggerVerdict
    reason: str
    trigger_share: float | None
    trigger_share_ci: tuple[float, float]
    effects: dict[str, Estimate] = {}
    refused: dict[str, Estimate] = {}

    @property
    def share(self) -> Estimate:
        """The trigger share with its limits."""
        return Estimate(nan if self.trigger_share is None else self.trigger_share, *self.trigger_share_ci)


class TriggerResults(TriggerFindings, ContextResults, TriggerShareResult):
    """stages/triggers.json."""
