"""Typed results of the dials, as `stages/steer.json` and the section `steer` of results.json hold them."""

from __future__ import annotations

from pydantic import Field

from experiments.run.estimates import Share
from extract.record import Record
from probes.direction import Locus
from scoring.estimate import Estimate
from scoring.rates import RatesRecord
from steering.actuator_record import ActuatorRecord

RiskRates = dict[str, float | None]  # of each risk of `surface.RISKS`; null where no prompt is judged


class DialResult(Record):
    """What one dial reads, how well, what it writes, and its threshold."""

    read_at: Locus | None = Field(None, alias="read")
    test_auroc: float | None = None
    test_auroc_ci: tuple[float, float] | None = None
    test_ece: float | None = None
    test_brier: float | None = None
    written_at: Locus | None = Field(None, alias="write")  # an onset bias has none
    actuator: ActuatorRecord | None = None
    steps: int | None = None
    later: bool = False
    threshold: float
    band: float = 0.0


class KnownFacts(Record):
    """The share of known answers that is stated on test prompts, with no dial and under the dials."""

    before: float | None
    after: float | None
    n: int


class BeforeAfter(Record):
    """A share of test prompts with no dial and under the dials."""

    before: Share
    after: Share


class RiskCertificate(Record):
    """One risk at the chosen thresholds, on certification prompts, one a group."""

    limit: float | None  # none was asked for
    certified: bool
    failures: int
    n: int
    at_most: float  # upper limit of the risk
    best_reachable: float  # what n prompts certify if none fails
    n_needed: int | None  # prompts that certify the limit if none fails
    n_at_this_rate: int | None  # and if as many fail as did; null where no number would do


class Certificate(Record):
    """By which rule the thresholds were chosen, and what holds for them on certification prompts."""

    rule: str
    part: str
    confidence: float
    jointly: list[str]  # limits that hold together
    settings_certified: int
    settings_tried: int
    risks: dict[str, RiskCertificate]


class Setting(Record):
    """Thresholds with every risk's rate on the prompts that choose and on test."""

    thresholds: dict[str, float]
    choice: RiskRates
    test: RiskRates


class LeastRegret(Setting):
    """The cheapest setting on the prompts that choose, its cost on test, and how far that is above the least there."""

    costs: dict[str, float]
    cost: float
    regret: float


class Matched(Record):
    """For each policy, the best setting that declines no more benign prompts than the dials do, where they choose."""

    over_refusal_at_most: float
    two_dials: Setting
    one_dial: Setting | None = None

    @property
    def policies(self) -> dict[str, Setting]:
        """Return the settings by policy."""
        return {"two_dials": self.two_dials} | ({} if self.one_dial is None else {"one_dial": self.one_dial})


class SystemLine(Record):
    """One line in the system message in place of dials, on test prompts."""

    line: str
    rates: RatesRecord
    known_facts_right: float | None


class SystemLines(Record):
    """The system lines that were tried, or why there are none."""

    reason: str = ""
    points: list[SystemLine] = []


class Volume(Estimate):
    """The hypervolume of a policy with its bootstrap interval, and the number of points behind it."""

    points: int | None = None


class Hypervolume(Record):
    """The hypervolume that each policy dominates on test prompts, and differences of two dials from each other policy.

    Of the unit cube spanned by `axes`, towards `reference`.
    """

    axes: list[str] = []
    reference: list[float] = []
    n: dict[str, int]  # test prompts of each risk
    two_dials: Volume
    one_dial: Volume | None = None
    system_lines: Volume | None = None
    plain: Volume
    two_minus: dict[str, Estimate]

    @property
    def policies(self) -> dict[str, Volume]:
        """Return the volumes by policy."""
        found = {"two_dials": self.two_dials, "one_dial": self.one_dial, "system_lines": self.system_lines,
                 "plain": self.plain}  # fmt: skip
        return {name: volume for name, volume in found.items() if volume is not None}


class SteerResult(Record):
    """Everything of `refusal steer`; in results.json without `absent`, the joint rates and `known_facts_right`.

    Where the model has no dial, the fields from `certified` on are null or absent.
    """

    dials: dict[str, DialResult] = {}
    absent: list[str] = []
    before: RatesRecord = RatesRecord()
    after: RatesRecord = RatesRecord()
    known_facts_right: KnownFacts | None = None
    over_refusal_with_trigger: BeforeAfter | None = None
    certified: Certificate | None = None
    frontier: dict[str, list[Setting]] | None = None  # by policy
    system_lines: SystemLines = SystemLines()
    hypervolume: Hypervolume | None = None
    one_dial_written_at: Locus | None = None
    matched: Matched | None = None
    least_regret: LeastRegret | None = None
    as_looked_up: float | None = None  # share of test prompts that did what the table says
