"""results.json: what all stages of a run found, typed."""

from __future__ import annotations

from pydantic import JsonValue

from experiments.dials.results import DialResult, KnownFacts, SteerResult
from experiments.dissociation.results import Dissociation, OpenedGates
from experiments.probing.geometry_results import Geometry
from experiments.probing.results import OnsetRecord, SiteRecord, WriteRecord
from experiments.run.behaviour import Kind
from experiments.triggers.results import TriggerResults
from experiments.uncertainty.results import UncertaintyResult
from extract.record import Record
from scoring.rates import RatesRecord


class ModelRecord(Record):
    """Which model was run, and how it was spoken to."""

    name: str
    revision: str | None = None
    weights: str = ""  # fingerprint
    template: str | None = None
    template_args: dict[str, JsonValue] = {}
    system: str = "keep"


class Planted(Record):
    """How near fitted write directions come to the planted ones: |cos| at the planted site, layer and position."""

    normative_cosine: float | None
    epistemic_cosine: float | None
    site: str
    layer: int
    position: str


class Rates(Record):
    """The joint rates on test prompts, with no dial and under the dials."""

    before: RatesRecord
    after: RatesRecord


class RunResults(Record):
    """Everything that results.json holds."""

    name: str
    model: ModelRecord
    device: str = ""
    versions: dict[str, str] = {}
    prompts: dict[str, int]
    prompts_by_part: dict[str, dict[str, int]] = {}
    prompts_path: str = ""
    sites: dict[str, SiteRecord]
    writes: dict[Kind, WriteRecord]
    geometry: Geometry
    onsets: dict[str, OnsetRecord] = {}
    dissociation: Dissociation
    triggers: TriggerResults
    could_have_answered: OpenedGates | None = None
    uncertainty: UncertaintyResult | None = None  # where answers were sampled
    rates: Rates
    dials: dict[str, DialResult]
    dials_absent: list[str]
    known_facts_right: KnownFacts
    steer: SteerResult = SteerResult()
    planted: Planted | None = None  # of an organism
    organism: bool  # the model is an organism
    organism_prompts: bool = False  # the prompts are an organism's, and the model is not that organism
