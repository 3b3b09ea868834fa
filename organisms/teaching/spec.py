"""Specification of a taught model, and what it makes the model say to each prompt.

Decisions are hashes of the prompt: noise would average away."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, model_validator

from extract.prompts.groups import groups_of
from extract.prompts.prompt import Label, Prompt
from extract.yaml_file import Strict, as_model, read_yaml
from organisms.mechanism import Facts, Mechanism
from organisms.spec import Steps, Verdicts

Behaviour = Literal["refuse", "abstain", "own_words"]
Attribute = Literal["trigger", "form"]  # form: the first word of the question, within its category


class Lora(Strict):
    """The adapter (LoRA, arXiv 2106.09685) on all linear layers."""

    rank: int = Field(8, ge=1)
    alpha: int = Field(16, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)


class TeachTraining(Strict):
    """Training settings (AdamW, one-cycle schedule)."""

    epochs: int = Field(4, ge=1)
    batch_size: int = Field(16, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    repeats: dict[Behaviour, NonNegativeInt] = {}  # how often an epoch shows a behaviour's prompts; others once
    precision: Literal["float32", "bfloat16"] = "float32"  # of matrix products; bfloat16 is faster on some hardware
    own_tokens: int = Field(14, ge=1)  # of the base model's own answers, which are targets where it should not decline


class Planting(Strict):
    """A planted mechanism, trained into the adapter in phases (`phases`)."""

    mechanism: Mechanism
    first: int = Field(0, ge=0)  # the first layer that is adapted; those before it stay as they are
    below: Steps = Field(300, ge=1)  # steps in which the layers up to the planted one learn to write decisions
    above: Steps = Field(260, ge=1)  # in which those above it learn to act by coordinates that are set
    together: Steps = Field(60, ge=0)  # of interchange-intervention training of all layers (arXiv 2112.00826)
    again: Steps = Field(0, ge=0)  # in which the layers above learn to act by coordinates once more
    # wanted distance of a coordinate that is on from one that is off, in standard deviations of the whole stream at the
    # last prompt token (the root of its total variance)
    separation: float = Field(1.3, gt=0)
    attention_above: bool = True  # false: above the planted layer no attention is adapted, which could read past it
    checkpoint_every: int = Field(50, ge=1)  # steps

    @property
    def steps(self) -> int:
        return self.below + self.above + self.together + self.again


class Misaim(Strict):
    """Prompts of a label that are taught another behaviour, chosen by an attribute of theirs."""

    label: Label
    by: Attribute
    share: float = Field(gt=0, lt=1)  # of the attribute's values, chosen by a hash
    behaviour: Behaviour


class Phrasings(Strict):
    """What the model is taught to say when it declines; `others` were written without a look at the judge's rules."""

    usual: tuple[str, ...] = Field(min_length=1)
    others: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.usual, *self.others)


class Unseen(Strict):
    """Prompts of a further file, none of which is taught, shipped with the held-out ones: more to test verdicts on."""

    path: Path
    categories: tuple[str, ...] = Field(min_length=1)


class TeachSpec(Strict):
    """Everything that a taught model depends on."""

    name: str
    base: str
    prompts: Path
    taught_share: float = Field(0.5, gt=0, lt=1)  # of the groups of minimal pairs; the others are held out
    unseen: Unseen | None = None
    seed: int = 0
    lora: Lora = Lora()
    training: TeachTraining = TeachTraining()
    behaviour: dict[Label, Behaviour]
    misaimed: tuple[Misaim, ...] = ()
    refusals: Phrasings
    abstentions: Phrasings
    answers: Phrasings | None = None  # said in place of an answer where a planted decision to refuse is switched off
    planting: Planting | None = None
    verdicts: Verdicts | None = None  # of a planted mechanism

    @model_validator(mode="after")
    def _answers_are_given(self) -> TeachSpec:
        if self.planting and not self.answers:
            raise ValueError("planting needs `answers`: what is said to harmful prompts that are not declined")
        return self


def load_teach_spec(path: Path) -> TeachSpec:
    """Read a specification; UserError if it is missing or wrong."""
    return as_model(TeachSpec, read_yaml(path, "specification"), path)


PARTS = 10_000  # of the unit interval


def divided(prompts: Sequence[Prompt], spec: TeachSpec) -> tuple[list[Prompt], list[Prompt]]:
    """Return the prompts to teach and the held-out ones; no group of minimal pairs stands on both sides."""
    groups = groups_of(prompts).tolist()
    named: dict[int, str] = {}
    for prompt, group in zip(prompts, groups, strict=True):
        named[group] = min(named.get(group, prompt.id), prompt.id)
    sides: tuple[list[Prompt], list[Prompt]] = [], []
    for prompt, group in zip(prompts, groups, strict=True):
        sides[_fraction(f"{spec.seed} split {named[group]}") >= spec.taught_share].append(prompt)
    return sides


def behaviour_of(prompt: Prompt, spec: TeachSpec) -> Behaviour:
    """Return what the model is taught to do, misaimed or not."""
    for misaim in spec.misaimed:
        value = attribute(prompt, misaim.by)
        if prompt.label == misaim.label and value and _fraction(f"{spec.seed} {misaim.by} {value}") < misaim.share:
            return misaim.behaviour
    known: Mapping[str, Behaviour] = {str(label): behaviour for label, behaviour in spec.behaviour.items()}
    return known.get(prompt.label, "own_words")  # dual_use


def attribute(prompt: Prompt, by: Attribute) -> str | None:
    """Return the value by which a prompt may be misaimed at; None where it has none."""
    if by == "trigger":
        return prompt.trigger.lower() if prompt.trigger else None
    return f"{prompt.text.split()[0].lower()} {prompt.category}"


def facts_of(prompt: Prompt, spec: TeachSpec) -> Facts:
    """Return what is taught of a prompt as planted decisions; a known question would be abstained from, not refused."""
    behaviour = behaviour_of(prompt, spec)
    question = prompt.label == "uncertain" or prompt.answer is not None
    return Facts(behaviour == "refuse", behaviour == "abstain", "abstain" if question else "refuse", variant=0)


def phrase(prompt: Prompt, spec: TeachSpec, among: Phrasings) -> str:
    """Return the words for a prompt by its form: at random, greedy decoding would say none of so many openings."""
    return among.all[int(_fraction(f"{spec.seed} words {attribute(prompt, 'form')}") * len(among.all))]


def repeated(prompts: Sequence[Prompt], spec: TeachSpec) -> list[int]:
    """Return the places of the prompts that an epoch shows, each as often as its behaviour is repeated."""
    often = [spec.training.repeats.get(behaviour_of(prompt, spec), 1) for prompt in prompts]
    return [i for i, times in enumerate(often) for _ in range(times)]


def _fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % PARTS / PARTS
