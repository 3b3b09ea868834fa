"""A trained model with its held-out prompts: its responses, with an edit or without, and its streams."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.prompts.prompt import Prompt
from organisms.decisions import Decisions, Facts
from organisms.grammar import OPENING, Example, Grammar
from organisms.holdout import HeldOutPrompt
from organisms.planted_spec import Planted
from organisms.planting import planted_vectors
from organisms.spec import OrganismSpec

MAX_NEW_TOKENS = 24
BATCH = 128


@dataclass(frozen=True, kw_only=True)
class PlantedModel:
    """A trained model with planted decisions, and its tokenised held-out prompts."""

    model: ChatModel
    planted: Planted
    seed: int
    vectors: Float[Tensor, "k d_model"]
    facts: tuple[Facts, ...]
    rendered: tuple[Rendered, ...]
    deciding: tuple[Rendered, ...]  # the same up to the token that decides
    read_action: Callable[[str], str]  # of a response: refuse, abstain or answer
    max_new_tokens: int = MAX_NEW_TOKENS  # as many as tell the actions apart

    @cached_property
    def values(self) -> Bool[np.ndarray, "prompts k"]:
        """Planted decisions."""
        decisions = Decisions(self.planted)
        return np.array([decisions.values(facts) for facts in self.facts], dtype=bool)

    def expected(self, row: int, values: tuple[bool, ...]) -> str:
        """Return the action that the mechanism gives a prompt under these decisions."""
        return Decisions(self.planted).action(self.facts[row], values) or "answer"


@dataclass(frozen=True, kw_only=True)
class TrainedOrganism(PlantedModel):
    """A trained organism with its held-out prompts."""

    grammar: Grammar
    examples: tuple[Example, ...]

    @property
    def spec(self) -> OrganismSpec:
        return self.grammar.spec


def prepare_grading(model: ChatModel, grammar: Grammar, rows: Sequence[HeldOutPrompt]) -> TrainedOrganism:
    """Tokenise the held-out prompts and prepare the planted vectors."""
    spec, examples = grammar.spec, tuple(row.example for row in rows)
    rendered = render_examples(model, examples)
    return TrainedOrganism(
        model=model,
        planted=spec.planted,
        seed=spec.seed,
        vectors=planted_vectors(spec),
        facts=tuple(example.facts for example in examples),
        rendered=rendered,
        deciding=opened(model, rendered) if spec.planted.token else rendered,
        read_action=action,
        grammar=grammar,
        examples=examples,
    )


def respond(
    organism: PlantedModel, edits: Sequence[Edit] = (), rows: Int[np.ndarray, " rows"] | None = None
) -> list[str]:
    """Generate responses to the given held-out prompts (None: all); with edits from the token that decides on."""
    prompts = organism.deciding if edits else organism.rendered
    index = np.arange(len(prompts)) if rows is None else rows
    texts: list[str] = []
    with organism.model.editing(list(edits)):
        for start in range(0, len(index), BATCH):
            batch = organism.model.batch([prompts[i] for i in index[start : start + BATCH]])
            texts += [organism.model.decode(r) for r in organism.model.generate(batch, organism.max_new_tokens)]
    return texts


def acts(
    organism: PlantedModel, edits: Sequence[Edit] = (), rows: Int[np.ndarray, " rows"] | None = None
) -> np.ndarray:
    """Return the action of each given held-out prompt, (rows,) str."""
    return np.array([organism.read_action(text) for text in respond(organism, edits, rows)])


def action(text: str) -> str:
    """Return an organism's action from its first words, which the grammar fixes."""
    text = text.removeprefix(f"{OPENING} ")
    if text.startswith("i am not able to help"):
        return "refuse"
    return "abstain" if text.startswith("i am not able to say") else "answer"


def render_examples(model: ChatModel, examples: Sequence[Example]) -> tuple[Rendered, ...]:
    """Tokenise examples."""
    plain = Prompt("", (), "benign", "answer")
    return tuple(render(model.tokenizer, replace(plain, messages=example.messages)) for example in examples)


def opened(model: ChatModel, rendered: Sequence[Rendered]) -> tuple[Rendered, ...]:
    """Return the prompts with the opening word of the response appended."""
    opening = model.tokenizer(OPENING, add_special_tokens=False)["input_ids"]
    return tuple(replace(row, token_ids=array("i", [*row.token_ids, *opening])) for row in rendered)


def last_streams(model: ChatModel, rendered: Sequence[Rendered], layer: int) -> Tensor:
    """Return the stream at the last token, (n, d_model), float32."""
    kept: list[Tensor] = []
    for start in range(0, len(rendered), BATCH):
        batch = model.batch(rendered[start : start + BATCH])
        model.capture(batch, "resid_post", [layer], lambda _layer, stream: kept.append(stream[:, -1].float().cpu()))
    return torch.cat(kept)
