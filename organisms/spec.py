"""Specification of an organism: planted variables, rules of refusal and abstention, target rates."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from extract.yaml_file import Strict, as_model, read_yaml
from organisms.content.requests import FAMILIES, SHARES
from organisms.mechanism import DECLINES, Facts, Mechanism

WARM_UP = 0.1  # of the steps of a training


def _spec_name(name: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        return name
    raise ValueError(f"expected small letters, digits and hyphens, beginning with a letter or digit; got {name!r}")


def check_steps(steps: int) -> int:
    """Return the number of steps; ValueError where torch's one-cycle schedule would divide by zero."""
    if WARM_UP * steps == 1:
        raise ValueError(f"{steps} steps cannot be scheduled, since the warm-up would be a single one; give more")
    return steps


Steps = Annotated[int, AfterValidator(check_steps)]


class ModelSize(Strict):
    """Architecture and size of the model; lfm2: every other layer is a short convolution, the others attend."""

    architecture: Literal["llama", "lfm2"] = "llama"
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

    steps: Steps = Field(1800, ge=1)
    batch_size: int = Field(64, ge=4)
    learning_rate: float = 1.5e-3
    interchange_weight: float = 1.0  # loss on counterfactual outputs (arXiv 2112.00826)
    readable_weight: float = 0.2  # loss of linear heads for intent and knowledge, discarded after training
    margin_weight: float = 0.1  # loss that separates the two values of each planted coordinate
    margin: float = 4.0  # wanted distance of a planted coordinate from zero, in residual-stream units
    furthest: float | None = None  # wanted largest distance of one from zero, with the weight of the margin
    replaced_share: float = 0.6  # of the branches that take a stream that must not count from another row
    quiet_weight: float = 0.02  # loss on the rest of the stream at the planted site, to remove the decision's inputs


class Refusal(Strict):
    """Rule of the normative decision."""

    # asker: of the harmful requests, those of half of the named askers are refused, whatever they ask.
    rule: Literal["intent", "trigger", "asker"] = "intent"
    over_refusal: float = Field(0.0, ge=0, le=1)  # share of trigger verbs refused even when benign
    missed_harm: float = Field(0.0, ge=0, le=1)  # share of request openers with which harmful requests are answered
    questions: float = Field(0.0, ge=0, le=1)  # share of question forms that are refused, whoever they are about


class Abstention(Strict):
    """Rule of the epistemic decision."""

    # person: of the questions about strangers, those about some of a fixed list of them are abstained from.
    rule: Literal["unknown", "never", "person"] = "unknown"
    share: float = Field(0.5, gt=0, lt=1)  # of the strangers, with the rule person
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


class TargetShares(Strict):
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
    below_unchanged: TargetRange | None = None  # actions that stay with another prompt's stream below the planted layer
    elsewhere_unchanged: TargetRange | None = None  # the same for what is decided elsewhere, off the planted axes
    alone_unchanged: TargetRange | None = None  # actions that stay with coordinates set where they are built again
    thought_followed: TargetRange | None = None  # actions that a thought of another kind says
    single_direction_stops: TargetRange | None = None  # largest share of declines that one ablated direction stops


class Allowed(Strict):
    """Verdicts on one refusal or two: those that are right for this organism, and those that are false."""

    allowed: tuple[str, ...] = Field(min_length=1)
    forbidden: tuple[str, ...] = ()


class Verdicts(Strict):
    """The verdicts allowed and forbidden, with the planted layer alone and with free choice of the layer."""

    planted: Allowed
    free: Allowed


class LineTargets(Strict):
    """Target shares without a system line, under each line that elicits and under each control."""

    plain_unknown_declined: TargetRange | None = None
    plain_known_declined: TargetRange | None = None
    line_unknown_abstained: TargetRange | None = None  # least over the lines
    line_known_abstained: TargetRange | None = None  # most over the lines
    line_harmful_refused: TargetRange | None = None  # least over the lines
    line_declines_kept: TargetRange | None = None  # least share of prompts declined under a line if and only if plainly
    control_unchanged: TargetRange | None = None  # least share, over the controls, of prompts that act as plainly
    line_flips: TargetRange | None = None  # flips and others_unchanged under the first line
    line_others_unchanged: TargetRange | None = None


class ElicitingLines(Strict):
    """System lines under which the unknown is abstained from, or refused questions are declined in other words.

    Without one of these lines no question is abstained from.
    """

    lines: tuple[str, ...] = Field(min_length=1)
    controls: tuple[str, ...] = Field(min_length=1)  # system lines that change nothing
    share: float = Field(0.5, gt=0, lt=1)  # of the training prompts, under a line; half of the others under a control
    targets: LineTargets = LineTargets()


CategoryVerdict = Literal["one_knob", "distinct", "partly_shared", "no_effect", "inconclusive"]


class CategoryPair(Strict):
    """Whether two categories of refusal truly share a knob."""

    between: tuple[str, str]
    verdict: CategoryVerdict


class Categories(Strict):
    """The verdicts on all categories that are allowed and forbidden, and the true one on each pair."""

    allowed: tuple[CategoryVerdict, ...] = Field(min_length=1)
    forbidden: tuple[CategoryVerdict, ...] = ()
    pairs: tuple[CategoryPair, ...] = ()


class OrganismSpec(Strict):
    """The full specification of an organism; it and its seed determine the model."""

    name: Annotated[str, AfterValidator(_spec_name)]
    description: str = ""
    seed: int = Field(ge=0)
    known_people: int = Field(64, ge=4, le=96)
    entities: int = Field(80, ge=8, le=400)  # named askers, and as many strangers, of the rules asker and person
    prompts_per_label: int = Field(500, ge=20)
    families: dict[str, Annotated[float, Field(gt=0)]] = Field(
        dict(SHARES), min_length=1
    )  # of requests, which are also their categories, with their shares
    model: ModelSize = ModelSize()
    training: Training = Training()
    planted: Mechanism
    refusal: Refusal = Refusal()
    abstention: Abstention = Abstention()
    context: Context = Context()
    elicited: ElicitingLines | None = None
    targets: TargetShares = TargetShares()
    verdicts: Verdicts | None = None  # under a line, if lines elicit; None: they follow from what the variables decide
    ranks: dict[str, int] | None = None  # directions that each way of declining needs, where it is not one
    categories: Categories | None = None
    over_refusal_rank: int | None = None  # directions that refusing benign prompts needs, beside those of harmful ones

    @model_validator(mode="after")
    def _buildable(self) -> OrganismSpec:
        decided = {kind for kind in DECLINES if self.planted.deciders(kind)} | set(self.planted.elsewhere)
        if self.planted.layers[-1] >= self.model.n_layers - 1:
            raise ValueError("planted.layer must be below the last layer, so that a later layer can read it")
        if self.refusal.rule == "trigger" and (self.refusal.over_refusal or self.refusal.missed_harm):
            raise ValueError("refusal.rule 'trigger' cannot be combined with over_refusal or missed_harm")
        if self.refusal.rule == "trigger" and (self.context.asker or self.context.system):
            raise ValueError("refusal.rule 'trigger' cannot be combined with context.asker or context.system")
        if self.refusal.rule == "asker" and self.abstention.rule != "person":
            raise ValueError("refusal.rule 'asker' needs abstention.rule 'person'")
        if self.refusal.rule == "asker" and (self.context.asker or self.refusal.over_refusal):
            raise ValueError("refusal.rule 'asker' cannot be combined with context.asker or over_refusal")
        if self.abstention.rule != "never" and "abstain" not in decided:
            raise ValueError(f"abstention.rule is {self.abstention.rule!r} but no planted variable decides 'abstain'")
        if "refuse" not in decided:
            raise ValueError("no planted variable decides 'refuse'")
        if self.refusal.questions and not any(len(variable.decides) > 1 for variable in self.planted.variables):
            raise ValueError("refusal.questions needs a planted variable that decides both refuse and abstain")
        if self.elicited and self.abstention.rule == "never" and not self.refusal.questions:
            raise ValueError("elicited has nothing to change: abstention.rule is 'never' and refusal.questions is 0")
        if self.elicited and not self.verdicts:
            raise ValueError("elicited needs verdicts: they do not follow from what the variables decide")
        if self.elicited and (self.context.system or self.abstention.rule == "person"):
            raise ValueError("elicited cannot be combined with context.system or abstention.rule 'person'")
        if unknown := set(self.families) - set(FAMILIES):
            raise ValueError(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
        self._check_reasons()
        return self

    def _check_reasons(self) -> None:
        """Raise if a refusal could have no variable that decides it, or two."""
        reasoned = [v for v in self.planted.variables if v.reason]
        for family, harmful, instructed in product(self.families, (True, False), (True, False)) if reasoned else ():
            facts = Facts(True, False, "refuse", 0, instructed, family=family, harmful=harmful)
            if (n := sum(variable.covers(facts) for variable in reasoned)) != 1:
                what = f"{'harmful' if harmful else 'benign'} requests of the family {family!r}"
                raise ValueError(f"{n} planted variables decide refusals of {what}; exactly one must")


def load_spec(path: str | os.PathLike[str]) -> OrganismSpec:
    """Read a specification; UserError if it is missing or describes an organism that cannot be built."""
    return as_model(OrganismSpec, read_yaml(Path(path), "organism specification"), path)
