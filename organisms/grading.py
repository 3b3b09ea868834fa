"""Grades a trained model with planted decisions: its responses to held-out prompts, with interventions or without."""

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
from extract.model.edit import Edit, Pass, Scope
from extract.prompts.prompt import Prompt
from organisms.grammar import OPENING, Example, Grammar
from organisms.holdout import HeldOutPrompt
from organisms.mechanism import DECLINES, Decisions, Facts, Mechanism
from organisms.planting import coordinates, dual_basis, planted_vectors, set_coordinates
from organisms.spec import OrganismSpec

MAX_NEW_TOKENS = 24
BATCH = 128


@dataclass(frozen=True, kw_only=True)
class PlantedModel:
    """A trained model with planted decisions, and its tokenised held-out prompts."""

    model: ChatModel
    planted: Mechanism
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


ANGLES = np.linspace(0, np.pi, 12, endpoint=False)  # of directions in the plane of two planted vectors


def class_means(organism: PlantedModel, *, rebuilt: bool = False) -> Float[np.ndarray, "k 2"]:
    """Return the mean planted coordinate of each variable when off and on, where it is planted or built again."""
    on = organism.values
    means = np.full((on.shape[1], 2), np.nan)
    for k in range(on.shape[1]):
        if on[:, k].any() and not on[:, k].all():
            layer = _rebuilt_layer(organism) if rebuilt else organism.planted.layer_of(k)
            held, dual = _axes(organism, layer)
            read = coordinates(last_streams(organism.model, organism.deciding, layer), dual)[:, held.index(k)].numpy()
            means[k] = read[~on[:, k]].mean(), read[on[:, k]].mean()
    return means


def interchanged(
    organism: PlantedModel, plain: np.ndarray, scopes: Sequence[Scope] = ("last_prompt", "last_on")
) -> dict[str, float]:
    """Set each planted coordinate to a class mean, and return the least share of each kind over scopes.

    Args:
        plain: the action on each prompt without an edit.
        scopes: the tokens at which it is set: the deciding one alone, and from there on.
    """
    places = [class_means(organism)]
    if organism.planted.rebuilt is not None:
        places.append(class_means(organism, rebuilt=True))
    flips, unchanged, alone = list[float](), list[float](), list[float]()
    for scope in scopes:
        for k in range(organism.values.shape[1]):
            if np.isnan(places[0][k]).any():
                continue
            for on in (False, True):
                edits = [
                    _setting(organism, k, means[k, int(on)], scope, rebuilt=bool(place))
                    for place, means in enumerate(places)
                ]
                flips.append(_flip_share(organism, k, on, edits))
                unchanged += _others(organism, plain, k, on, edits)
                if len(places) > 1:
                    alone.append(float((acts(organism, edits[:1]) == plain).mean()))
    return {
        "flips": min(flips, default=float("nan")),
        "others_unchanged": min(unchanged, default=float("nan")),
        "alone_unchanged": min(alone, default=float("nan")),
    }


def unmoved(organism: PlantedModel, plain: np.ndarray, *, single_directions: bool) -> dict[str, float]:
    """Replace streams that must not count by those of other prompts; then ablate single directions at every layer.

    Below the planted layer, this is asked of declines that several variables decide or that are built again; where
    there are none, of all.
    """
    planted = organism.planted
    several = [kind for kind in DECLINES if len(planted.deciders(kind)) > 1 or planted.rebuilt is not None]
    below = [
        _kept(organism, plain, layer, off_axis=False, among=np.isin(plain, several or DECLINES))
        for layer in planted.blank_layers
        if not planted.token
    ]
    measured = {"below_unchanged": min(below, default=float("nan")), "elsewhere_unchanged": float("nan")}
    if planted.elsewhere:
        own = np.isin(plain, planted.elsewhere)
        measured["elsewhere_unchanged"] = _kept(organism, plain, planted.layer, off_axis=True, among=own)
    most = _most_stopped(organism, plain, several) if single_directions else float("nan")
    return measured | {"single_direction_stops": most}


def _flip_share(organism: PlantedModel, k: int, on: bool, edits: list[Edit]) -> float:
    """Return the share of prompts whose action is that of the grammar after variable k is switched."""
    rows = np.flatnonzero(organism.values[:, k] != on)
    wanted = np.array([organism.expected(row, _switched(organism, row, k, on)) for row in rows.tolist()])
    return float((acts(organism, edits, rows) == wanted).mean())


def _others(organism: PlantedModel, plain: np.ndarray, k: int, on: bool, edits: list[Edit]) -> list[float]:
    """Return, for each other variable, the share of its decliners that decline in the same way with coordinate k set.

    Decliners are prompts that are declined as planted without an edit, and that k does not change by the grammar:
    refusal overrides abstention, so switching on a refusal for an abstaining prompt does not count.
    """
    planted = [organism.expected(row, tuple(values)) for row, values in enumerate(organism.values.tolist())]
    spared = [organism.expected(row, _switched(organism, row, k, on)) == now for row, now in enumerate(planted)]
    rows_of = [
        np.flatnonzero(organism.values[:, other] & (plain == planted) & spared & (plain != "answer"))
        for other in range(organism.values.shape[1])
        if other != k
    ]
    return [float((acts(organism, edits, rows) == plain[rows]).mean()) for rows in rows_of if len(rows)]


def _switched(organism: PlantedModel, row: int, k: int, on: bool) -> tuple[bool, ...]:
    values = tuple(organism.values[row].tolist())
    return (*values[:k], on, *values[k + 1 :])


def _setting(organism: PlantedModel, k: int, target: float, scope: Scope, *, rebuilt: bool) -> Edit:
    layer = _rebuilt_layer(organism) if rebuilt else organism.planted.layer_of(k)
    held, dual = _axes(organism, layer)
    vectors, where = organism.vectors[held], torch.zeros(len(held), dtype=torch.bool)
    where[held.index(k)] = True

    def put(stream: Tensor, pass_: Pass) -> Tensor:
        goal = torch.full((*stream.shape[:2], len(held)), target)
        covered = pass_.covers(scope, stream.device)[None, :, None] & where
        return set_coordinates(stream, goal, covered, vectors, dual)

    return Edit("resid_post", layer, put)


def _kept(organism: PlantedModel, plain: np.ndarray, layer: int, *, off_axis: bool, among: np.ndarray) -> float:
    """Return the share of prompts whose action stays with another prompt's stream at the deciding token.

    Each prompt takes the stream of a prompt that acts otherwise, so that a stream that counts would show.
    """
    rng = np.random.default_rng([organism.seed, 10])
    rows = np.flatnonzero(among)
    others = [np.flatnonzero(plain != plain[row]) for row in rows]
    if not len(rows) or not all(map(len, others)):
        return float("nan")
    streams = last_streams(organism.model, organism.deciding, layer)
    _, dual = _axes(organism, layer)
    vectors = organism.vectors[_axes(organism, layer)[0]]
    taken = streams[[int(rng.choice(choices)) for choices in others]]
    same = []
    for start in range(0, len(rows), BATCH):
        chunk = slice(start, start + BATCH)

        def put(stream: Tensor, pass_: Pass, new: Tensor = taken[chunk]) -> Tensor:
            if not pass_.is_prefill:
                return stream
            if off_axis and len(vectors):
                now = coordinates(stream[:, -1], dual)
                new = new + (now - coordinates(new, dual)) @ vectors
            return torch.cat([stream[:, :-1], new[:, None].to(stream.dtype)], dim=1)

        same.append(acts(organism, [Edit("resid_post", layer, put)], rows[chunk]) == plain[rows[chunk]])
    return float(np.concatenate(same).mean())


def _most_stopped(organism: PlantedModel, plain: np.ndarray, kinds: Sequence[str]) -> float:
    """Return the largest share of one way of declining that one ablated direction stops at a layer up to the planted.

    Directions: the difference in means of decliners and other prompts, and those in the planes of the planted vectors.
    An ablation puts the mean coordinate of the answered prompts in place of the coordinate (affine ablation).
    """
    most = 0.0
    for layer in range(organism.planted.layer + 1):
        streams = last_streams(organism.model, organism.deciding, layer)
        answered = streams[plain == "answer"].mean(0)
        for kind in kinds:
            rows = np.flatnonzero(plain == kind)
            if not len(rows):
                continue
            for direction in [streams[rows].mean(0) - answered, *_planted_directions(organism)]:
                unit = direction / direction.norm()
                edit = _ablation(layer, unit, float(answered @ unit))
                most = max(most, float((acts(organism, [edit], rows) != kind).mean()))
    return most


def _planted_directions(organism: PlantedModel) -> list[Tensor]:
    vectors = organism.vectors
    if len(vectors) < 2:
        return list(vectors)
    return [float(np.cos(a)) * vectors[0] + float(np.sin(a)) * vectors[1] for a in ANGLES]


def _ablation(layer: int, unit: Tensor, level: float) -> Edit:
    def put(stream: Tensor, pass_: Pass) -> Tensor:
        covered = pass_.covers("last_on", stream.device)[None, :, None]
        return torch.where(covered, stream + (level - stream @ unit)[..., None] * unit, stream)

    return Edit("resid_post", layer, put)


def _axes(organism: PlantedModel, layer: int) -> tuple[list[int], Tensor]:
    """Return the variables planted at a layer and their dual basis."""
    planted = organism.planted
    held = [k for k in range(len(planted.variables)) if layer in (planted.layer_of(k), planted.rebuilt)]
    return held, dual_basis(organism.vectors[held]) if held else organism.vectors[held]


def _rebuilt_layer(organism: PlantedModel) -> int:
    layer = organism.planted.rebuilt
    if layer is None:
        raise ValueError("nothing is built again in this organism")
    return layer
