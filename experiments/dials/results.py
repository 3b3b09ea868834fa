"""Typed results of the dials, as `stages/steer.json` and the section `steer` of results.json hold them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from experiments.run.behaviour import Kind
from experiments.run.outcomes import Share
from extract.record import Record
from probes.direction import Locus
from probes.statistics.intervals import NO_ESTIMATE, Estimate
from scoring.rates import RATES, JointRates
from steering.actuator import ActuatorRecord

FILES = ("dials.safetensors", "completions_steered.jsonl", "table.jsonl", "surface.parquet", "stages/steer.json")
TOKEN_READINGS = "token_readings.jsonl"
COMPARED = 48  # validation prompts of each label, at most, on which ways to write are compared
CHECKED = 48  # test prompts that are answered with the dials themselves too
MOST_PROMPTS = 4000  # test prompts with readings at every token; the page holds them all
LARGEST_MARGIN = "largest safety margin"  # a value of ThresholdCertificate.rule
NONE_WORSE = "least mistakes, none worse"
LEAST_RISE = "least rise"
RiskRates = dict[str, float | None]  # of each risk of `surface.MEASURED`; null where no prompt is judged
When = Literal["before", "after"]  # the dials
POLICIES = {"two_dials": "the dials", "one_dial": "one dial", "system_lines": "a system line", "plain": "no change"}
UNCERTAIN = ("overconfidence", "uncertain_refused")  # the parts of uncertain_mistaken
COUNTED = RATES | {  # label and actions
    "uncertain_mistaken": ("uncertain", RATES["overconfidence"][1] | RATES["uncertain_refused"][1])
}


class ByPolicy(Record):
    """Fields named by some of `POLICIES`."""

    @property
    def policies(self) -> dict[str, Any]:
        values = {name: getattr(self, name, None) for name in POLICIES}
        return {name: value for name, value in values.items() if value is not None}


class DialResult(Record):
    """One dial: its read and the read's accuracy, its write, and its threshold."""

    read_at: Locus | None = Field(None, alias="read")
    test_auroc: float | None = None
    test_auroc_ci: tuple[float, float] | None = None
    test_ece: float | None = None
    test_brier: float | None = None
    written_at: Locus | None = Field(None, alias="write")  # an onset bias has none
    actuator: ActuatorRecord | None = None
    steps: int | None = None
    later: bool = False
    says: list[str] = []  # the openings of an onset bias, as text
    opening: int = 0  # further directions that it sets to their answering means where it permits
    threshold: float
    band: float = 0.0


class TriedWriter(Record):
    """A way for a dial to write, on validation prompts; see `elicited_write`."""

    kind: Kind
    name: Literal["declines", "direction", "openings", "answer"]
    did: Share  # of prompts that it declines: what is declined in its way
    declined: Share  # of benign prompts that it permits
    lost: Estimate  # of known answers, where it permits

    @property
    def loss(self) -> float:
        shares = 1 - self.did.estimate, self.declined.estimate, self.lost.estimate
        return float(np.nansum(shares))  # without known answers, or prompts to decline, the others count


class KnownFacts(Record):
    """The share of known answers stated on test prompts, without dials and with them; what these lose of the former."""

    before: float | None
    after: float | None
    n: int
    lost: Estimate = NO_ESTIMATE


class BeforeAfter(Record):
    """A share of test prompts without dials and with them."""

    before: Share
    after: Share


class PairedChange(Record):
    """A rate without dials and with them, on test prompts judged both times, and its paired change over groups."""

    before: float
    after: float
    change: Estimate


class RiskCertificate(Record):
    """One risk at the chosen thresholds, on certification prompts, one a group."""

    limit: float | None  # None: no limit is set
    certified: bool
    failures: int
    n: int
    at_most: float  # upper confidence limit of the risk
    best_reachable: float  # limit that n prompts certify if none fails
    n_needed: int | None  # prompts that certify the limit if none fails
    n_at_this_rate: int | None  # the same at the observed failure rate; null where no number is enough
    best_on_choice: float | None = None  # lowest rate of any setting tried, on the choice prompts


class ThresholdCertificate(Record):
    """The rule that chose the thresholds, and the certificate of each risk on certification prompts."""

    rule: str  # largest safety margin, least mistakes and none worse, least rise, least cost, given, nearest 0.5
    part: str
    confidence: float
    jointly: list[str]  # limits that hold together
    settings_certified: int
    settings_tried: int
    settings_within_limits: int | None = None  # settings that meet every limit on the choice prompts
    risks: dict[str, RiskCertificate]


class RatedThresholds(Record):
    """Thresholds with the rate of every risk on the choice prompts and on test."""

    thresholds: dict[str, float]
    choice: RiskRates
    test: RiskRates


class LeastRegret(RatedThresholds):
    """The cheapest setting on the choice prompts, its cost on test, and its regret: how far above the least."""

    costs: dict[str, float]
    cost: float
    regret: float


class MatchedSettings(ByPolicy):
    """For each policy, the best setting whose over-refusal on the choice prompts is at most that of the dials."""

    over_refusal_at_most: float
    two_dials: RatedThresholds
    one_dial: RatedThresholds | None = None


class SystemLine(Record):
    """One system line in place of dials, on test prompts."""

    line: str
    rates: JointRates
    known_facts_right: float | None


class SystemLines(Record):
    """The system lines that were tried, or why there are none."""

    reason: str = ""
    points: list[SystemLine] = []


@dataclass(frozen=True, kw_only=True)
class HypervolumeEstimate(Estimate):
    """The hypervolume of a policy and the number of points of its frontier; it has no interval."""

    points: int | None = None


class Hypervolume(ByPolicy):
    """The share of the unit cube of `axes`, up to `reference`, that each policy dominates on test prompts."""

    axes: list[str] = []
    reference: list[float] = []
    n: dict[str, int]  # test prompts of each risk
    two_dials: HypervolumeEstimate
    one_dial: HypervolumeEstimate | None = None
    system_lines: HypervolumeEstimate | None = None
    plain: HypervolumeEstimate
    two_minus: dict[str, Estimate]


class ExpectedCosts(Record):
    """Least expected cost of each policy on test prompts, 0 to 1, a mean over cost ratios; settings chosen off test."""

    costs: dict[str, float]  # of each mistake, as `steer.costs`
    ratios: list[float]  # by which the cost of over_refusal is multiplied
    policies: dict[str, float | None]
    saved: dict[str, Estimate]  # the cost of another policy minus that of two dials


class CategoryDials(Record):
    """Thresholds of a category, certificate and test rates; of prompts recognised as it, whatever their own is."""

    thresholds: dict[Kind, float] | None  # by dial; None: the category keeps those of all prompts
    why: list[str] = []  # it keeps them
    certificate: ThresholdCertificate | None = None  # of its own thresholds, whether they are certified or not
    recognised: dict[str, int] = {}  # calibration prompts by label
    test: JointRates = JointRates()  # at its thresholds
    test_pooled: JointRates = JointRates()  # at those of all prompts


class ByCategory(Record):
    """Thresholds by category: how categories are recognised, and what each of them has."""

    read_at: Locus | None = None
    confident: float | None = None  # least probability of a recognised category
    recognised: float | None = None  # share of test prompts that are recognised as some category
    right: float | None = None  # share of these whose category it is
    categories: dict[str, CategoryDials] = {}
    changes: dict[str, PairedChange] = {}  # of the joint rates on test, from one threshold for all to these
    as_looked_up: float | None = None  # share of CHECKED test prompts whose action with these is the one in the table
    reason: str = ""  # why there are none


class ThoughtTokens(Record):
    """Median tokens of the thoughts before answers to test prompts, over groups, and how many more uncertain ones take.

    Overthinking of ill-posed questions; `more` is the median difference to the twins of a group.
    """

    uncertain: Estimate
    twins: Estimate
    more: Estimate

    def __str__(self) -> str:
        more = f"{self.more.estimate:+.0f} [{self.more.low:+.0f}, {self.more.high:+.0f}]"
        return f"{self.uncertain:.0f} tokens before uncertain prompts, {self.twins:.0f} before their twins ({more})"


class SteerResult(Record):
    """Everything of `refusal steer`; in results.json without `absent`, the joint rates and `known_facts_right`."""

    dials: dict[str, DialResult] = {}
    absent: list[str] = []
    before: JointRates = JointRates()
    after: JointRates = JointRates()
    known_facts_right: KnownFacts | None = None
    over_refusal_with_trigger: BeforeAfter | None = None
    uncertain_mistaken: BeforeAfter | None = None  # answered firmly or refused
    changes: dict[str, PairedChange] = {}  # of each joint rate that has prompts
    mistakes: PairedChange | None = None  # over_refusal + missed_harm + overconfidence; None where one has no prompts
    thoughts: dict[When, ThoughtTokens] = {}  # of a model that thinks
    certified: ThresholdCertificate | None = None
    frontier: dict[str, list[RatedThresholds]] | None = None  # by policy
    system_lines: SystemLines = SystemLines()
    hypervolume: Hypervolume | None = None
    expected_costs: ExpectedCosts | None = None
    one_dial_written_at: Locus | None = None
    matched: MatchedSettings | None = None
    least_regret: LeastRegret | None = None
    by_category: ByCategory | None = None  # where asked for
    tried: list[TriedWriter] = []  # for dials of a model that does not abstain by itself
    no_opening: str = ""  # why there are no further directions, where they are asked for
    as_looked_up: float | None = None  # share of CHECKED test prompts whose action with dials is the one in the table

    def on_axis(self, rates: JointRates, axis: str, when: When | None = None) -> Estimate:
        """Return a rate on an axis of the trade-off; `uncertain_mistaken` has limits where measured (`when`)."""
        if axis != "uncertain_mistaken":
            return rates.of(axis)
        if when is not None and self.uncertain_mistaken is not None:
            return getattr(self.uncertain_mistaken, when)
        parts = [rates.of(name) for name in UNCERTAIN]
        return replace(NO_ESTIMATE, estimate=sum(part.estimate for part in parts), n=parts[0].n)


class TokenReadings(Record):
    """One line of token_readings.jsonl: each dial's probe at each token from a test prompt's last user turn on."""

    id: str
    tokens: list[str]  # a character of several tokens is the text of the last of them; the others are empty
    words: int  # the first tokens, which are the user's; the others are the template's
    log_odds: dict[Kind, list[float]]  # of declining, by each dial's calibration, which holds at `read_at` alone
    read_at: dict[Kind, list[int]]  # the tokens at which each dial itself reads; their mean, where there are several
