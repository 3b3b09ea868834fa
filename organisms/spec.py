"""Specification of an organism: planted variables, rules of refusal and abstention, target rates."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from extract.errors import UserError
from extract.yaml_file import Strict, explain, read_yaml

Decline = Literal["refuse", "abstain"]


def _spec_name(name: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        return name
    raise ValueError(f"expected small letters, digits and hyphens, beginning with a letter or digit; got {name!r}")


class ModelSize(Strict):
    """Size of the Llama-architecture model."""

    n_layers: int = Field(8, ge=2)
    d_model: int = Field(128, ge=16)
    n_heads: int = Field(4, ge=1)
    d_mlp: int = Field(384, ge=16)

    @model_validator(mode="after")
    def _divisible(self) -> ModelSize:
        if self.d_model % (2 * self.n_heads):
            raise ValueError("d_model must be a multiple of twice n_heads, because rotary heads have an even width")
        return self


class Training(Strict):
    """Training settings (AdamW, one-cycle schedule)."""

    steps: int = Field(1800, ge=1)
    batch_size: int = Field(64, ge=4)
    learning_rate: float = 1.5e-3
    interchange_weight: float = 1.0  # loss on counterfactual outputs (arXiv 2112.00826)
    readable_weight: float = 0.2  # loss of linear heads for intent and knowledge, discarded after training
    margin_weight: float = 0.1  # loss that separates the two values of each planted coordinate
    margin: float = 4.0  # wanted distance of a planted coordinate from zero, in residual-stream units
    quiet_weight: float = 0.02  # loss on the rest of the stream at the planted site, to remove the decision's inputs


class Variable(Strict):
    """One planted binary variable; its coordinate decides the given ways of declining."""

    name: str
    decides: tuple[Decline, ...] = Field(min_length=1)


class Cosine(Strict):
    """The planted cosine between two variables' unit vectors."""

    between: tuple[str, str]
    value: float = Field(gt=-1, lt=1)


class Planted(Strict):
    """Layer and directions of the planted decisions (`resid_post[layer]`, last prompt token)."""

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
            raise ValueError("only one variable may decide each way of declining")
        pairs = [frozenset(cosine.between) for cosine in self.cosines]
        if any(len(pair) < 2 for pair in pairs) or len(set(pairs)) != len(pairs):
            raise ValueError("each cosine must be between two different variables, and each pair may occur once")
        unknown = {name for cosine in self.cosines for name in cosine.between} - set(names)
        if unknown:
            raise ValueError(f"cosines name variables that are not planted: {sorted(unknown)}")
        return self


class Refusal(Strict):
    """Rule of the normative decision."""

    rule: Literal["intent", "trigger"] = "intent"
    over_refusal: float = Field(0.0, ge=0, le=1)  # share of trigger verbs refused even when benign
    missed_harm: float = Field(0.0, ge=0, le=1)  # share of request openers with which harmful requests are answered


class Abstention(Strict):
    """Rule of the epistemic decision."""

    rule: Literal["unknown", "never"] = "unknown"
    overconfidence: float = Field(0.0, ge=0, le=1)  # share of question forms answered with an invented fact


class Context(Strict):
    """Attributes outside the last turn; each value is the share of requests with the attribute."""

    # The earlier turn determines the meaning of the last one; a share of the requests that have a situation.
    earlier_turn: float = Field(0.0, ge=0, le=1)
    asker: float = Field(0.0, ge=0, le=1)  # trusted askers are never over-refused, untrusted ones are refused more
    system: float = Field(0.0, ge=0, le=1)  # a strict system line adds refusals, a lenient one removes over-refusal
    # Benign requests that untrusted askers and strict lines cause to be refused: those with a trigger word, or all.
    reach: Literal["triggers", "requests"] = "triggers"


class TargetRange(Strict):
    """The target range of a measured share; an organism outside it is not written."""

    low: float = 0.0
    high: float = 1.0

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Targets(Strict):
    """Target behaviour of the trained model on held-out prompts. Targets that are None are not checked."""

    harmful_refused: TargetRange | None = None
    harmful_with_trigger_refused: TargetRange | None = None
    harmful_without_trigger_refused: TargetRange | None = None
    benign_without_trigger_answered: TargetRange | None = None
    benign_with_trigger_refused: TargetRange | None = None
    known_right: TargetRange | None = None
    unknown_abstained: TargetRange | None = None
    flips: TargetRange | None = None  # smallest share, over variables and signs, of decisions their coordinate flips
    others_unchanged: TargetRange | None = None  # smallest share of the other decisions that stay unchanged
    bag_of_words_auroc: TargetRange | None = None  # intent among prompts with a trigger, held out
    residual_auroc: TargetRange | None = None  # the same from resid_post at the planted layer


class OrganismSpec(Strict):
    """The full specification of an organism; it and its seed determine the model."""

    name: Annotated[str, AfterValidator(_spec_name)]
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
            raise ValueError("planted.layer must be below the last layer, so that a later layer can read it")
        if self.refusal.rule == "trigger" and (self.refusal.over_refusal or self.refusal.missed_harm):
            raise ValueError("refusal.rule 'trigger' cannot be combined with over_refusal or missed_harm")
        if self.refusal.rule == "trigger" and (self.context.asker or self.context.system):
            raise ValueError("refusal.rule 'trigger' cannot be combined with context.asker or context.system")
        if self.abstention.rule == "unknown" and self.variable_of("abstain") is None:
            raise ValueError("abstention.rule is 'unknown' but no planted variable decides 'abstain'")
        if self.variable_of("refuse") is None:
            raise ValueError("no planted variable decides 'refuse'")
        return self

    def variable_of(self, kind: Decline) -> int | None:
        """Return the index of the planted variable that decides this way of declining, or None."""
        for index, variable in enumerate(self.planted.variables):
            if kind in variable.decides:
                return index
        return None


def load_spec(path: str | os.PathLike[str]) -> OrganismSpec:
    """Read a specification.

    Raises:
        UserError: the file is missing, is not YAML, or describes an organism that cannot be built.
    """
    raw = read_yaml(Path(path), "organism specification")
    try:
        return OrganismSpec.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, OrganismSpec)}") from None
