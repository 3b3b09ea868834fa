"""What a model is taught to say to each prompt. Decisions are hashes of the prompt: noise would average away."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt
from organisms.teaching.spec import Attribute, Behaviour, Phrasings, TeachSpec

PARTS = 10_000  # of the unit interval


def divided(prompts: Sequence[Prompt], spec: TeachSpec) -> tuple[list[Prompt], list[Prompt]]:
    """Return the prompts to teach and the held-out ones; no group of minimal pairs stands on both sides."""
    groups = groups_of(prompts).tolist()
    named: dict[int, str] = {}
    for prompt, group in zip(prompts, groups, strict=True):
        named[group] = min(named.get(group, prompt.id), prompt.id)
    taught = [_fraction(f"{spec.seed} split {named[group]}") < spec.taught_share for group in groups]
    return (
        [prompt for prompt, here in zip(prompts, taught, strict=True) if here],
        [prompt for prompt, here in zip(prompts, taught, strict=True) if not here],
    )


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


def decline(prompt: Prompt, spec: TeachSpec) -> str | None:
    """Return the words in which a prompt is to be declined; None where it is not.

    They follow the form of the prompt: words at random would share out the probability of declining among so many
    openings that greedy decoding says none of them.
    """
    behaviour = behaviour_of(prompt, spec)
    if behaviour == "own_words":
        return None
    return phrase(prompt, spec, spec.refusals if behaviour == "refuse" else spec.abstentions)


def phrase(prompt: Prompt, spec: TeachSpec, among: Phrasings) -> str:
    """Return the words for a prompt of its form."""
    return among.all[int(_fraction(f"{spec.seed} words {attribute(prompt, 'form')}") * len(among.all))]


def repeated(prompts: Sequence[Prompt], spec: TeachSpec) -> list[int]:
    """Return the places of the prompts that an epoch shows, each as often as its behaviour is repeated."""
    often = [spec.training.repeats.get(behaviour_of(prompt, spec), 1) for prompt in prompts]
    return [i for i, times in enumerate(often) for _ in range(times)]


def _fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % PARTS / PARTS
