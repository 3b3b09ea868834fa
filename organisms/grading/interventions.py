"""Interventions on a trained organism, against what its grammar says that they change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from extract.model.edit import Edit, Pass, Scope
from organisms.grading.trained import BATCH, PlantedModel, acts, last_streams
from organisms.planted_spec import DECLINES
from organisms.planting import coordinates, dual_basis, set_coordinates

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
