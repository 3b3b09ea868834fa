"""results.json: the typed results of all stages of a run."""

from __future__ import annotations

from pydantic import JsonValue

from experiments.dials.results import DialResult, KnownFacts, SteerResult
from experiments.dissociation.results import Dissociation, OpenedGates
from experiments.probing.results import Geometry, OnsetRecord, SiteRecord, UnspokenReads, WriteRecord
from experiments.run.basis import DeclinesByReason
from experiments.run.behaviour import Kind
from experiments.run.config import QUESTIONS, Question
from experiments.triggers.results import TriggerResults
from experiments.uncertainty.results import UncertaintyResult
from extract.record import Record
from scoring.accommodation import AccommodationRecord
from scoring.rates import JointRates
from scoring.scorecard import RightActionCard


class ModelRecord(Record):
    """The model of a run, its weights and its chat template."""

    name: str
    revision: str | None = None
    adapter: str | None = None  # the directory of a LoRA adapter
    weights: str = ""  # fingerprint
    template: str | None = None
    template_args: dict[str, JsonValue] = {}
    system: str = "keep"


class Planted(Record):
    """Recovery of the planted directions: |cos| with the fitted write directions at the planted locus."""

    normative_cosine: float | None
    epistemic_cosine: float | None
    site: str
    layer: int
    position: str


class Rates(Record):
    """The joint rates on test prompts, without and with the dials."""

    before: JointRates
    after: JointRates
    by_reason: DeclinesByReason | None = None  # of the plain model, on all answered prompts


class RightActions(Record):
    """The right-action scores on test prompts, without and with the dials."""

    before: RightActionCard = RightActionCard()
    after: RightActionCard = RightActionCard()


class RunResults(Record):
    """The contents of results.json."""

    name: str
    model: ModelRecord
    device: str = ""
    versions: dict[str, str] = {}
    judge: str = ""  # its name
    ask: tuple[Question, ...] = QUESTIONS
    prompts: dict[str, int]  # answered
    only_read: int = 0  # prompts that only the read probes use, since they were not answered
    settled_answers: int = 0  # plain answers that ended early (generate.settled_within)
    settled_tokens: int = 0  # that they are shorter, at most
    prompts_by_part: dict[str, dict[str, int]] = {}
    prompts_path: str = ""
    sites: dict[str, SiteRecord]
    writes: dict[Kind, WriteRecord]
    geometry: Geometry
    onsets: dict[str, OnsetRecord] = {}
    unspoken: UnspokenReads = UnspokenReads()  # what is read and not said, by category of uncertain prompts
    dissociation: Dissociation
    triggers: TriggerResults
    could_have_answered: OpenedGates | None = None
    uncertainty: UncertaintyResult | None = None  # where answers were sampled
    rates: Rates
    right_action: RightActions = RightActions()
    accommodation: AccommodationRecord | None = None  # where prompts are pairs of a direct and a loaded question
    dials: dict[str, DialResult]
    dials_absent: list[str]
    known_facts_right: KnownFacts
    steer: SteerResult = SteerResult()
    planted: Planted | None = None  # of an organism
    left_out: tuple[str, ...] = ()  # by `--budget`, in sentences
    contrast: tuple[str, str] | None = None  # the ways of declining that stand in place of the two refusals
    organism: bool  # the model is an organism
    organism_prompts: bool = False  # the prompts are an organism's, and the model is not that organism
