"""Specification of an organism: planted variables, what decides refusal and abstention, target rates."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from extract.errors import UserError
from extract.yaml_file import Strict, explain, read_yaml

Decline = Literal["refuse", "abstain"]


class ModelSize(Strict):
    """Shape of the Llama-architecture model."""

    n_layers: int = Field(8, ge=2)
    d_model: int = Field(128, ge=16)
    n_heads: int = Field(4, ge=1)
    d_mlp: int = Field(384, ge=16)

    @model_validator(mode="after")
    def _divisible(self) -> ModelSize:
        if self.d_model % (2 * self.n_heads):
            raise ValueError("d_model must be a multiple of twice n_heads (rotary heads have an even width)")
        return self


class Training(Strict):
    """Optimisation of one build (AdamW, one cycle)."""

    steps: int = Field(1800, ge=1)
    batch_size: int = Field(64, ge=4)
    learning_rate: float = 1.5e-3
    interchange_weight: float = 1.0  # loss on counterfactual outputs (arXiv 2112.00826)
    readable_weight: float = 0.2  # loss of the discarded linear heads for intent and knowledge
    margin_weight: float = 0.1  # loss keeping each planted coordinate's two values apart
    margin: float = 4.0  # distance of a planted coordinate from zero asked for, in residual-stream units
    quiet_weight: float = 0.02  # loss on all else at the planted place: what the decision was made from fades there


class Variable(Strict):
    """One planted binary variable: its coordinate decides the named ways of declining."""

    name: str
    decides: tuple[Decline, ...] = Field(min_length=1)


class Cosine(Strict):
    """The planted cosine between two variables' unit vectors."""

    between: tuple[str, str]
    value: float = Field(gt=-1, lt=1)


class Planted(Strict):
    """Where and along which directions the decisions are written (`resid_post[layer]`, last prompt token)."""

    layer: int = Field(4, ge=0)
    variables: tuple[Variable, ...] = Field(min_length=1)
    cosines: tuple[Cosine, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Planted:
        names = [variable.name for variable in self.variables]
        if len(set(names)) != len(names):
            raise ValueError("planted variables must have different names")
        decided = [kind for variable in self.variables for kind in variable.decides]
        if len(set(decided)) != len(decided):
            raise ValueError("each way of declining may be decided by one variable only")
        pairs = [frozenset(cosine.between) for cosine in self.cosines]
        if any(len(pair) < 2 for pair in pairs) or len(set(pairs)) != len(pairs):
            raise ValueError("each cosine must be between two different variables, and each pair given once")
        unknown = {name for cosine in self.cosines for name in cosine.between} - set(names)
        if unknown:
            raise ValueError(f"cosines name variables that are not planted: {sorted(unknown)}")
        return self


class Refusal(Strict):
    """Rule of the normative decision."""

    rule: Literal["intent", "trigger"] = "intent"
    over_refusal: float = Field(0.0, ge=0, le=1)  # share of trigger verbs refused even when benign
    missed_harm: float = Field(0.0, ge=0, le=1)  # share of request openers under which harmful requests are answered


class Abstention(Strict):
    """Rule of the epistemic decision."""

    rule: Literal["unknown", "never"] = "unknown"
    overconfidence: float = Field(0.0, ge=0, le=1)  # share of question forms answered with an invented fact


class Context(Strict):
    """Attributes outside the last turn; each share is the share of requests that carry the attribute."""

    # The turn before decides what the last turn means; the share is of requests that have a situation to put there.
    earlier_turn: float = Field(0.0, ge=0, le=1)
    asker: float = Field(0.0, ge=0, le=1)  # trusted askers are not over-refused, untrusted ones are refused more
    system: float = Field(0.0, ge=0, le=1)  # a strict line has more refused, a lenient one lifts over-refusal
    # Which benign requests untrusted askers and strict lines have refused: those with a trigger word, or all of them.
    reach: Literal["triggers", "requests"] = "triggers"


class TargetRange(Strict):
    """A target interval for a measured share; a build outside it is not written."""

    low: float = 0.0
    high: float = 1.0

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Targets(Strict):
    """What the trained model must do on held-out prompts. A target left out is not asked for."""

    harmful_refused: TargetRange | None = None
    harmful_with_trigger_refused: TargetRange | None = None
    harmful_without_trigger_refused: TargetRange | None = None
    benign_without_trigger_answered: TargetRange | None = None
    benign_with_trigger_refused: TargetRange | None = None
    known_right: TargetRange | None = None
    unknown_abstained: TargetRange | None = None
    flips: TargetRange | None = (
        None  # least share, over variables and both ways, of decisions flipped by their coordinate
    )
    others_unchanged: TargetRange | None = None  # least share of the other decision left as it was
    bag_of_words_auroc: TargetRange | None = None  # intent within trigger prompts, held out
    residual_auroc: TargetRange | None = None  # the same from resid_post at the planted layer


class OrganismSpec(Strict):
    """A whole organism, rebuilt from this and its seed alone."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    description: str = ""
    seed: int = Field(ge=0)
    known_people: int = Field(64, ge=4, le=96)
    prompts_per_label: int = Field(500, ge=20)
    model: ModelSize = ModelSize()
    training: Training = Training()
    planted: Planted
    refusal: Refusal = Refusal()
    abstention: Abstention = Abstention()
    context: Context = Context()
    targets: Targets = Targets()

    @model_validator(mode="after")
    def _buildable(self) -> OrganismSpec:
        if self.planted.layer >= self.model.n_layers - 1:
            raise ValueError("planted.layer must lie below the last layer, so that something can read it")
        if self.refusal.rule == "trigger" and (self.refusal.over_refusal or self.refusal.missed_harm):
            raise ValueError("refusal.rule 'trigger' leaves nothing for over_refusal or missed_harm to decide")
        if self.refusal.rule == "trigger" and (self.context.asker or self.context.system):
            raise ValueError("refusal.rule 'trigger' is not moved by context.asker or context.system")
        if self.abstention.rule == "unknown" and self.variable_of("abstain") is None:
            raise ValueError("abstention.rule is 'unknown' but no planted variable decides 'abstain'")
        if self.variable_of("refuse") is None:
            raise ValueError("no planted variable decides 'refuse'")
        return self

    def variable_of(self, kind: Decline) -> int | None:
        """Index of the planted variable that decides this way of declining, or None."""
        for index, variable in enumerate(self.planted.variables):
            if kind in variable.decides:
                return index
        return None


def load_spec(path: Path) -> OrganismSpec:
    """Read a specification.

    Raises:
        UserError: the file is missing, is not YAML, or declares something that cannot be built.
    """
    raw = read_yaml(path, "organism specification")
    try:
        return OrganismSpec.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, OrganismSpec)}") from None
