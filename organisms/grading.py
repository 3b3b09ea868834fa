"""Grades a trained model with planted decisions: its responses to held-out prompts, with interventions or without."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
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
from organisms.grammar import OPENING, Example
from organisms.interchange import coordinates, set_coordinates
from organisms.mechanism import CLOSE, DECLINES, END_OF_THOUGHT, Facts, Mechanism, PlantedVariable, Truth

WHOLE = 24 + END_OF_THOUGHT  # tokens of the longest response of a grammar
BATCH = 128
ANGLES = np.linspace(0, np.pi, 12, endpoint=False)  # of directions in the plane of two planted vectors


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
    max_new_tokens: int = 8  # as many as tell the actions apart, after a thought

    @cached_property
    def values(self) -> Bool[np.ndarray, "prompts k"]:
        return np.array([self.planted.values(facts) for facts in self.facts], dtype=bool)

    def expected(self, values: Bool[np.ndarray, "prompts k"]) -> np.ndarray:
        """Return the action that the mechanism gives each prompt under these decisions, (prompts,) str."""
        rows = zip(self.facts, values.tolist(), strict=True)
        return np.array([self.planted.action(facts, tuple(row)) or "answer" for facts, row in rows])

    def streams(self, layer: int) -> Float[Tensor, "prompts d_model"]:
        """Return the stream at the token that decides."""
        return last_streams(self.model, self.deciding, layer)


def respond(
    organism: PlantedModel, edits: Sequence[Edit] = (), rows: Int[np.ndarray, " rows"] | None = None
) -> list[str]:
    """Generate responses to the given held-out prompts (None: all); with edits from the token that decides on."""
    prompts = organism.deciding if edits else organism.rendered
    index = np.arange(len(prompts)) if rows is None else rows
    texts: list[str] = []
    n_tokens = organism.max_new_tokens + (END_OF_THOUGHT if organism.planted.thought else 0)
    with organism.model.editing(list(edits)):
        for start in range(0, len(index), BATCH):
            batch = organism.model.batch([prompts[i] for i in index[start : start + BATCH]])
            texts += [organism.model.decode(r) for r in organism.model.generate(batch, n_tokens)]
    return texts


def acts(
    organism: PlantedModel, edits: Sequence[Edit] = (), rows: Int[np.ndarray, " rows"] | None = None
) -> np.ndarray:
    """Return the action of each given held-out prompt, (rows,) str."""
    return np.array([organism.read_action(text) for text in respond(organism, edits, rows)])


def action(text: str) -> str:
    """Return an organism's action from its first words, which the grammar fixes."""
    text = text.rsplit(CLOSE)[-1].strip().removeprefix(f"{OPENING} ")
    if text.startswith("i am not able to help"):
        return "refuse"
    return "abstain" if text.startswith("i am not able to say") else "answer"


def render_examples(
    model: ChatModel, examples: Sequence[Example], said: Sequence[str] = (), most: int | None = None
) -> tuple[Rendered, ...]:
    """Tokenise examples, each followed by what was said after it: at most so many tokens of that."""
    rendered = tuple(render(model.tokenizer, Prompt("", e.messages, "benign", "answer")) for e in examples)
    if not said:
        return rendered
    more = model.tokenizer(list(said), add_special_tokens=False)["input_ids"]
    return tuple(
        replace(row, token_ids=array("i", [*row.token_ids, *ids[:most]]))
        for row, ids in zip(rendered, more, strict=True)
    )


def last_streams(model: ChatModel, rendered: Sequence[Rendered], layer: int) -> Float[Tensor, "prompts d_model"]:
    """Return the stream at the last token, float32."""
    kept: list[Tensor] = []
    for start in range(0, len(rendered), BATCH):
        batch = model.batch(rendered[start : start + BATCH])
        model.capture(batch, "resid_post", [layer], lambda _layer, stream: kept.append(stream[:, -1].float().cpu()))
    return torch.cat(kept)


def truth_of(
    name: str, organism: PlantedModel, measured: dict[str, float], over_refused: Collection[str] = ()
) -> Truth:
    """Return the ground truth: what is planted, the shares measured, and the trigger words refused when benign."""
    planted = organism.planted
    decided = planted.places[0]
    rows = zip(planted.variables, organism.vectors, decided, class_means(organism, decided).tolist(), strict=True)
    return Truth(
        name=name,
        site="resid_post",
        layer=planted.layer,
        position=planted.position,
        combine=planted.combine,
        variables=tuple(
            PlantedVariable(
                name=variable.name,
                decides=variable.decides,
                direction=tuple(round(float(x), 7) for x in vector),
                mean_off=off,
                mean_on=on,
                layer=layer,
            )
            for variable, vector, layer, (off, on) in rows
        ),
        over_refused_triggers=tuple(sorted(over_refused)),
        rates=measured,
    )


def class_means(organism: PlantedModel, layers: Sequence[int]) -> Float[np.ndarray, "k 2"]:
    """Return the mean planted coordinate of each variable when off and on, at a layer each."""
    on = organism.values
    means = np.full((on.shape[1], 2), np.nan)
    for k, layer in enumerate(layers):
        if on[:, k].any() and not on[:, k].all():
            held = organism.planted.held(layer)
            read = coordinates(organism.streams(layer), organism.vectors[held])[:, held.index(k)].numpy()
            means[k] = read[~on[:, k]].mean(), read[on[:, k]].mean()
    return means


def interchanged(
    organism: PlantedModel, plain: np.ndarray, scopes: Sequence[Scope] = ("last_prompt", "last_on")
) -> dict[str, float]:
    """Set each planted coordinate to a class mean, and return the least share of each kind over scopes.

    - flips: prompts whose action is that of the grammar after a variable is switched;
    - others_unchanged: of another variable's decliners, which without an edit decline as planted and which the grammar
      does not change (refusal overrides abstention), those that decline in the same way;
    - alone_unchanged: prompts that act as before where a coordinate is set only where it is decided, not built again.

    `plain` is the action on each prompt without an edit; `scopes` the deciding token alone, and from there on.
    """
    values, places = organism.values, organism.planted.places
    means = [class_means(organism, layers) for layers in places]
    planted = organism.expected(values)
    shares: dict[str, list[float]] = {"flips": [], "others_unchanged": [], "alone_unchanged": []}
    for scope in scopes:
        for k in range(values.shape[1]):
            if np.isnan(means[0][k]).any():
                continue
            for on in (False, True):
                edits = [
                    _setting(organism, k, mean[k, int(on)], scope, layers[k])
                    for mean, layers in zip(means, places, strict=True)
                ]
                switched = organism.expected(np.where(np.arange(values.shape[1]) == k, on, values))
                rows = np.flatnonzero(values[:, k] != on)
                shares["flips"].append(float((acts(organism, edits, rows) == switched[rows]).mean()))
                spared = (plain == planted) & (switched == planted) & (plain != "answer")
                for other in range(values.shape[1]):
                    rows = np.flatnonzero(values[:, other] & spared)
                    if other != k and len(rows):
                        shares["others_unchanged"].append(float((acts(organism, edits, rows) == plain[rows]).mean()))
                if len(places) > 1:
                    shares["alone_unchanged"].append(float((acts(organism, edits[:1]) == plain).mean()))
    return {name: min(several, default=float("nan")) for name, several in shares.items()}


def unmoved(organism: PlantedModel, plain: np.ndarray, *, single_directions: bool) -> dict[str, float]:
    """Replace streams that must not count by those of other prompts; then ablate single directions at every layer.

    Below the planted layer, this is asked of declines that several variables decide or that are built again; where
    there are none, of all.
    """
    planted = organism.planted
    several = [kind for kind in DECLINES if len(planted.deciders(kind)) > 1 or planted.rebuilt is not None]
    below = [
        _kept(organism, plain, layer, off_axis=False, among=np.isin(plain, several or DECLINES))
        for layer, _ in planted.blank_places
        if not planted.decider
    ]
    measured = {"below_unchanged": min(below, default=float("nan")), "elsewhere_unchanged": float("nan")}
    if planted.elsewhere:
        own = np.isin(plain, planted.elsewhere)
        measured["elsewhere_unchanged"] = _kept(organism, plain, planted.layer, off_axis=True, among=own)
    most = _most_stopped(organism, plain, several) if single_directions else float("nan")
    return measured | {"single_direction_stops": most}


def _setting(organism: PlantedModel, k: int, target: float, scope: Scope, layer: int) -> Edit:
    held = organism.planted.held(layer)
    vectors, where = organism.vectors[held], torch.tensor([index == k for index in held])

    def put(stream: Tensor, pass_: Pass) -> Tensor:
        goal = torch.full((*stream.shape[:2], len(held)), target)
        return set_coordinates(stream, goal, pass_.covers(scope, stream.device)[None, :, None] & where, vectors)

    return Edit("resid_post", layer, put)


def _kept(organism: PlantedModel, plain: np.ndarray, layer: int, *, off_axis: bool, among: np.ndarray) -> float:
    """Return the share of prompts that act alike with the deciding token's stream of one that acts otherwise."""
    rng = np.random.default_rng([organism.seed, 10])
    rows = np.flatnonzero(among)
    others = [np.flatnonzero(plain != plain[row]) for row in rows]
    if not len(rows) or not all(map(len, others)):
        return float("nan")
    vectors = organism.vectors[organism.planted.held(layer)]
    taken = organism.streams(layer)[[int(rng.choice(choices)) for choices in others]]
    same = []
    for start in range(0, len(rows), BATCH):
        chunk = slice(start, start + BATCH)

        def put(stream: Tensor, pass_: Pass, new: Tensor = taken[chunk]) -> Tensor:
            if not pass_.is_prefill:
                return stream
            if off_axis and len(vectors):
                now = coordinates(stream[:, -1], vectors)
                new = new + (now - coordinates(new, vectors)) @ vectors
            return torch.cat([stream[:, :-1], new[:, None].to(stream.dtype)], dim=1)

        same.append(acts(organism, [Edit("resid_post", layer, put)], rows[chunk]) == plain[rows[chunk]])
    return float(np.concatenate(same).mean())


def _most_stopped(organism: PlantedModel, plain: np.ndarray, kinds: Sequence[str]) -> float:
    """Return the largest share of one way of declining that one direction stops, ablated to the mean of the answered.

    Directions: the difference in means of decliners and answered prompts, and those in the plane of planted vectors.
    """
    vectors = organism.vectors
    planes = [float(np.cos(a)) * vectors[0] + float(np.sin(a)) * vectors[1] for a in ANGLES] if len(vectors) > 1 else []
    most = 0.0
    for layer in range(organism.planted.layer + 1):
        streams = organism.streams(layer)
        answered = streams[plain == "answer"].mean(0)
        for kind in kinds:
            rows = np.flatnonzero(plain == kind)
            if not len(rows):
                continue
            for direction in [streams[rows].mean(0) - answered, *(planes or vectors)]:
                unit = direction / direction.norm()

                def put(stream: Tensor, pass_: Pass, unit: Tensor = unit, level: Tensor = answered @ unit) -> Tensor:
                    covered = pass_.covers("last_on", stream.device)[None, :, None]
                    return torch.where(covered, stream + (level - stream @ unit)[..., None] * unit, stream)

                edit = Edit("resid_post", layer, put)
                most = max(most, float((acts(organism, [edit], rows) != kind).mean()))
    return most
