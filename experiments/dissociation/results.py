"""Typed results: what is measured besides the outcomes (stages/effects.json), the verdict, and the opened gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import Field

from experiments.dissociation.power import SampleSize
from experiments.dissociation.verdict_rules import DissociationVerdict
from experiments.elicited.results import Elicitation
from experiments.rank.results import Ranks
from experiments.run.behaviour import DECLINES, Basis, Kind
from experiments.run.corpus import TESTED
from experiments.run.outcomes import PLAIN, Share
from experiments.side_effects.results import SideEffects, TokenCosts
from extract.record import Record
from probes.direction import Locus
from probes.nonlinear_read import NonlinearRead
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import MIN_LABELLINGS, PValue, exceeds
from probes.statistics.sequential import DrawingRule

FIXED = "fixed"  # a condition of outcomes, beside PLAIN: of a model that thinks, each plain thought is kept
EVERYWHERE = "zero/every/all"  # a variant beside those of `steering.ablation_variant`: every layer and token
TURNED: dict[Kind, str] = {"normative": "refusals_abstained", "epistemic": "abstentions_refused"}  # matrix columns


class NullRecord(Record):
    """An onset effect and its permutation null: effects of directions fitted on permuted labels."""

    onset_effect: float | None  # None: not finite, for example because an intervention breaks the model
    null_95th_percentile: float | None
    p: PValue  # valid at every level, whatever the rule's
    n: int  # null directions that p counts; the others were drawn for another behaviour
    n_exceeding: int  # of those, with at least the observed effect
    rule: DrawingRule | None = None  # by which drawing stopped; None: as many were drawn as were asked for
    n_labellings: float | None = None  # distinct permutations of the labels; None: more than can be counted
    drawn: tuple[float | None, ...]
    stopped_by_generation: tuple[float, ...]  # for some drawn directions: share of decliners that the ablation stops

    @classmethod
    def of(
        cls,
        observed: float,
        drawn: Sequence[float] | np.ndarray,
        stopped: Sequence[float] = (),
        n_labellings: float = np.inf,
        rule: DrawingRule | None = None,
    ) -> Self:
        """Return the null with its one-sided p: (1 + #{drawn >= observed}) / (1 + n), or the rule's.

        p is NaN with too few labellings, and while the rule goes on. An observed effect that is not finite counts as
        -inf, a drawn one as +inf.
        """

        def plain(value: float) -> float | None:
            return float(value) if np.isfinite(value) else None

        finite = np.where(np.isfinite(drawn), drawn, np.nan)
        beyond = exceeds(np.nan_to_num(finite, nan=np.inf), observed if np.isfinite(observed) else -np.inf)
        counted = beyond[: None if rule is None else rule.stops(beyond)]
        p = (1 + counted.sum()) / (1 + len(counted)) if rule is None else rule.p(beyond)
        return cls(
            onset_effect=plain(observed),
            null_95th_percentile=plain(np.quantile(finite, 0.95)),
            p=float(p) if n_labellings >= MIN_LABELLINGS else float("nan"),
            n=len(counted),
            n_exceeding=int(counted.sum()),
            rule=rule,
            n_labellings=plain(n_labellings),
            drawn=tuple(plain(round(value, 4)) for value in finite.tolist()),
            stopped_by_generation=tuple(stopped),
        )

    @property
    def settled(self) -> bool:
        """Whether more null directions would not change p."""
        return not np.isnan(self.p) or (self.n_labellings or np.inf) < MIN_LABELLINGS

    def tested(self) -> tuple[float | None, int, float, int]:
        """Return p (None with too few labellings), the number of null directions, of labellings, of exceedances."""
        labellings = np.inf if self.n_labellings is None else self.n_labellings
        return None if np.isnan(self.p) else self.p, self.n, labellings, self.n_exceeding


class Dependence(Record):
    """The angle between the two write directions, and which ablation changes the stream along the other."""

    dependent: bool
    cosine: float
    cosine_ci: tuple[float, float]
    locus: Locus
    oblique: bool
    moved_under_ablation: tuple[str, ...]
    ablation_measured: bool = True  # False: the directions came from a file, and only their angle is known


@dataclass(frozen=True, kw_only=True)
class Carried(Estimate):
    """The share of an effect on declining that the thought carries."""

    total: float  # the effect, in probability of declining


class CarriedByThought(Record):
    """What part of two effects on declining the thought carries; None: nothing to measure it on."""

    ablation: Carried | None  # of ablating the own direction, by the thoughts that the model has then
    pairs: Carried | None  # of asking the answered prompt of the pair, by its thoughts
    unended: int = 0  # thoughts under the ablation that did not end, and are left out

    @property
    def known(self) -> bool:
        """Whether the share of the ablation's effect has limits: there is an effect to be carried."""
        return self.ablation is not None and bool(np.isfinite(self.ablation.limits()).all())


class MeasuredEffects(Record):
    """stages/effects.json: what the verdict is judged from besides the outcomes; independent of margin and level."""

    directions: tuple[Kind, ...]
    parts: tuple[str, ...] = ("test",)  # whose decliners were tested
    unsound: tuple[Kind, ...]  # directions of which no locus was within the limit of KL
    weak: tuple[Kind, ...] = ()  # directions that induce no declining when added, at any locus within that limit
    absent: dict[Kind, str]  # behaviours that cannot be tested, and why
    reads: dict[Kind, NonlinearRead] = {}  # of each behaviour's training samples
    null: dict[Kind, dict[Kind, NullRecord]]  # by ablated direction, then behaviour
    dependence: Dependence | None
    side_effects: dict[str, TokenCosts]  # by intervention
    fixed_null: dict[Kind, dict[Kind, NullRecord]] = {}  # of a model that thinks, each plain thought kept
    carried: dict[Kind, CarriedByThought] = {}


@dataclass(frozen=True, kw_only=True)
class EffectRecord(Estimate):
    """The share of a behaviour's decliners that ablating a direction stops."""

    ablated: Kind
    behaviour: Kind
    condition: str | None = None  # of elicited behaviour: plain, or line

    p_null: float | None = None  # of the onset effect, against permuted-label directions; None if not tested
    p_corrected: float | None = None  # Holm correction over all effects
    onset: Estimate | None = None  # mean fall of the onset log-odds, in nats
    null: NullRecord | None = None  # of the onset effect; None if not tested
    turned: Estimate | None = None  # share that then declines in the other way; of the plain run the matrix has it

    @property
    def what(self) -> str:
        """The declines that it is the effect on."""
        declines = DECLINES[self.behaviour]
        return {None: declines, PLAIN: f"plain {declines}"}.get(self.condition, f"{declines} under the line")


class VariantRecord(Record):
    """Another variant of ablation: shares by behaviour, None if there is no prompt to measure on."""

    ablated: str
    variant: str
    stopped: dict[str, Estimate | None]
    onset_effect: dict[str, float | None]
    benign_answered: Estimate | None


class MeasuredElicited(Record):
    """stages/elicited.json: what the verdict on elicited behaviour is judged from besides the outcomes."""

    reason: str = ""  # why nothing was measured
    parts: tuple[str, ...] = TESTED  # whose decliners were tested
    unsound: tuple[Kind, ...] = ()
    weak: tuple[Kind, ...] = ()
    null: dict[Kind, dict[str, dict[Kind, NullRecord]]] = {}  # by ablated direction, condition, then behaviour


@dataclass(frozen=True, kw_only=True)
class TransferEffect(Estimate):
    """Uncertain prompts gained minus twins gained, when the direction fitted under the line is added without it."""

    action: str  # abstain, or decline: in whatever words
    uncertain: float  # share that is gained of the uncertain prompts
    twins: float
    p_null: float | None = None  # against permuted-label directions of equal norm; None if none were added
    n_null: int = 0


class Elicited(Record):
    """The dissociation of refusals from abstentions that a system line elicits; no verdict on the plain model."""

    elicitation: Elicitation
    verdict: DissociationVerdict = "not_applicable"
    reasons: tuple[str, ...] = ()
    by_refusals: dict[str, DissociationVerdict] = {}  # the verdict against plain refusals, and those under the line
    contrasts: dict[Kind, Estimate] = {}  # own minus other direction's effect, against plain refusals
    power: tuple[SampleSize, ...] = ()
    effects: tuple[EffectRecord, ...] = ()  # of both directions in each cell
    turned: dict[Kind, Estimate] = {}  # share of harmful prompts abstained from under the line that a direction stops
    transfer: tuple[TransferEffect, ...] = ()


class FixedThought(Record):
    """The verdict with each plain thought kept: on what an ablation does to the answer's first tokens.

    A decline counts as stopped where the openings of neither way of declining are likelier than not.
    """

    verdict: DissociationVerdict
    reasons: tuple[str, ...]
    effects: tuple[EffectRecord, ...]
    carried: dict[Kind, CarriedByThought]


class Dissociation(Record):
    """stages/dissociate.json: the verdict, the results it is based on, and side effects."""

    verdict: DissociationVerdict
    basis: Basis = "wording"
    reasons: tuple[str, ...]
    margin: float
    alpha: float
    looks: tuple[float, ...] = ()  # at growing shares of the file's groups of test prompts, this one the last
    level: float | None = None  # of intervals at this look: those of all looks together are at alpha
    null_level: float | None = None  # of p-values, likewise
    variant: str
    power: tuple[SampleSize, ...]
    contrasts: dict[Kind, Estimate]  # own minus other direction's effect, by behaviour
    matrix: dict[str, dict[str, Estimate]]  # by intervention, then behaviour
    effects: tuple[EffectRecord, ...]
    additions: dict[str, Estimate] | None
    variants: tuple[VariantRecord, ...]
    dependence: Dependence | None
    reads: dict[str, NonlinearRead] = Field(default_factory=dict)  # by behaviour: declined against answered
    side_effects: dict[str, SideEffects]
    elicited: Elicited | None = None  # None: nothing was to be elicited (elicit.when)
    fixed_thought: FixedThought | None = (
        None  # of a model that thinks, whose verdict is on what it answers after new thoughts
    )
    rank: Ranks | None = None  # None: not searched (dissociate.rank is 1)


class Looks(Record):
    """looks.json: at which shares of a file's groups the effects were judged; it outlives the results of each look."""

    of: tuple[str, str]  # model and prompts
    shares: tuple[float, ...]


class OpenedLabel(Record):
    """Declined prompts of one label, answered again with the gate that declined them opened."""

    answered: Share
    answered_other_gate_open: Share | None  # the control
    right: Share  # of the prompts with a known answer


class OpenedGate(Record):
    """One gate; `labels` is empty if it is not applicable."""

    applicable: bool
    reason: str
    variant: str = ""
    labels: dict[str, OpenedLabel] = Field(default_factory=dict)


class OpenedGates(Record):
    """stages/gate_open.json."""

    normative: OpenedGate
    epistemic: OpenedGate
