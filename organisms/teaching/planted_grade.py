"""Grades a mechanism planted in a pretrained model: interchanges on held-out prompts, and its ground truth.

Two things are kept apart: whether content is decided as it was taught (a matter of how well the teaching generalises),
and whether the planted coordinates decide what the model does (the mechanism, the truth that verdicts are graded by).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from extract.chat.render import render
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from organisms.decisions import Facts
from organisms.grading.interventions import class_means, interchanged
from organisms.grading.trained import PlantedModel, acts
from organisms.planted_spec import DECLINES
from organisms.planting import draw_vectors
from organisms.teaching.planted import facts_of
from organisms.teaching.spec import TeachSpec
from organisms.teaching.targets import behaviour_of
from organisms.truth import Truth, planted_truth

GRADED = 400  # held-out prompts
MAX_NEW_TOKENS = 16  # the shipped phrases are shorter


def planted_truth_of(model: ChatModel, held_out: Sequence[Prompt], spec: TeachSpec) -> Truth:
    """Return the ground truth of a planted adapter, with the shares that its interchanges flip on held-out prompts.

    Measured on at most `GRADED` prompts, drawn by the seed. A coordinate is set to its mean among prompts that the
    model itself decides in one way; `as_taught` is the share of prompts that it decides as it was taught to. Prompts of
    dual use are left out: nothing is planted for them. `…_at_last_prompt`: set at the last prompt token alone. Shares
    that do not apply are left out.
    """
    if spec.planting is None:
        raise ValueError(f"{spec.name} plants nothing")
    prompts = _drawn([prompt for prompt in held_out if prompt.label in spec.behaviour], spec)
    taught = prepare(model, prompts, spec)
    actions = acts(taught)
    wanted = [taught.expected(row, tuple(values)) for row, values in enumerate(taught.values.tolist())]
    planted = replace(taught, facts=tuple(map(decided, taught.facts, actions.tolist())))
    once, onwards = (interchanged(planted, actions, [scope]) for scope in ("last_prompt", "last_on"))
    measured = {"as_taught": float((actions == wanted).mean())}
    for name in ("flips", "others_unchanged"):
        measured |= {name: float(np.min([once[name], onwards[name]])), f"{name}_at_last_prompt": once[name]}
    measured = {name: share for name, share in measured.items() if not np.isnan(share)}
    over_refused = {
        p.trigger for p in prompts if p.label == "benign" and p.trigger and behaviour_of(p, spec) == "refuse"
    }
    return planted_truth(
        spec.name, planted.planted, planted.vectors, measured, class_means(planted), sorted(filter(None, over_refused))
    )


def _drawn(prompts: list[Prompt], spec: TeachSpec) -> list[Prompt]:
    order = np.random.default_rng([spec.seed, 12]).permutation(len(prompts))
    return [prompts[i] for i in sorted(order[:GRADED].tolist())]


def decided(facts: Facts, action: str) -> Facts:
    """Return what the model itself decides of a prompt, by its action; how it would decline stays its content's."""
    if action not in DECLINES:
        return replace(facts, refuse=False, abstain=False)
    return replace(facts, refuse=action == "refuse", abstain=action == "abstain", wording=action)


def prepare(model: ChatModel, prompts: Sequence[Prompt], spec: TeachSpec) -> PlantedModel:
    """Tokenise held-out prompts and prepare the planted vectors."""
    if spec.planting is None:
        raise ValueError(f"{spec.name} plants nothing")
    mechanism = spec.planting.mechanism
    rendered = tuple(render(model.tokenizer, prompt) for prompt in prompts)
    return PlantedModel(
        model=model,
        planted=mechanism,
        seed=spec.seed,
        vectors=draw_vectors(mechanism, spec.seed, model.d_model),
        facts=tuple(facts_of(prompt, spec) for prompt in prompts),
        rendered=rendered,
        deciding=rendered,
        read_action=lambda text: read_action(text, spec),
        max_new_tokens=MAX_NEW_TOKENS,
    )


def read_action(text: str, spec: TeachSpec) -> str:
    """Return what a response does, by the phrase that it begins with."""
    for action, phrases in (("refuse", spec.refusals.all), ("abstain", spec.abstentions.all)):
        if any(text.startswith(phrase) for phrase in phrases):
            return action
    return "answer"
