"""Each ablation variant has its stated effect, at the stated layers and tokens, and a key of its own."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import SITES, Edit, Pass, Site
from probes.direction import Direction, Locus
from probes.means import unit
from probes.subspace import Subspace
from steering.ablation import (
    ablation,
    ablation_at_every_layer,
    addition,
    covers_layers,
    subspace_ablation,
    subspace_addition,
)
from steering.ablation_variant import DEFAULT, VARIANTS, Variant

R = unit(np.random.default_rng(0).standard_normal(32))
LATER = {2: (4.0, -4.0), 3: (5.0, -5.0)}
DIRECTION = Direction("d", R, Locus("resid_post", 1, "post_last"), 3.0, -2.0, later_means=LATER)


def streams(model: ChatModel, row: Rendered, edits: list[Edit], more: int = 2, where: Site = "resid_post") -> Tensor:
    """Return the projection on R of every layer and token of a prompt and some tokens after it, (n_layers, time)."""
    seen: dict[int, Tensor] = {}

    def look(layer: int) -> Edit:
        def function(stream: Tensor, _pass: Pass) -> Tensor:
            seen[layer] = stream[0].double() @ torch.tensor(R).double()
            return stream

        return Edit(where, layer, function)

    tokens = [*row.token_ids, *range(20, 20 + more)]
    batch = replace(model.pad([tokens], "left"), prompt_length=len(row.token_ids))
    with model.editing([*edits, *(look(layer) for layer in range(model.n_layers))]):
        model.logits(batch)
    return torch.stack([seen[layer] for layer in range(model.n_layers)])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_it_ablates_at_its_layers_and_tokens_only(variant: Variant, tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    row = tiny_rows[0]
    last, n = len(row.token_ids) - 1, len(row.token_ids) + 2
    plain, edited = (streams(tiny, row, edits) for edits in ([], ablation(DIRECTION, variant)))
    assert torch.equal(plain[:, :last], edited[:, :last])
    assert torch.equal(plain[0], edited[0])  # below its layer nothing changes
    goals = {"affine": [-2.0, -4.0, -5.0], "zero": [0.0, 0.0, 0.0]}.get(variant.form)
    layers = [1, 2, 3] if variant.layers == "later" else [1]
    written = [last] if variant.tokens == "last_prompt" else list(range(last, n))
    for layer, token in itertools.product(layers, written):
        goal = float(plain[layer, token]) - 5.0 if goals is None else goals[layer - 1]
        assert edited[layer, token].item() == pytest.approx(goal, abs=1e-4)
    for layer, token in itertools.product([1, 2, 3], range(last, n)):
        if layer not in layers or token not in written:
            goal = -99.0 if goals is None else goals[layer - 1]
            assert edited[layer, token].item() != pytest.approx(goal, abs=1e-4)


@pytest.mark.parametrize("where", SITES)
def test_it_sets_the_projection_at_the_site_that_its_class_means_belong_to(
    where: Site, tiny: ChatModel, tiny_rows: list[Rendered]
) -> None:
    direction = replace(DIRECTION, locus=Locus(where, 1, "post_last"))
    span = Subspace("s", np.eye(2, 32, dtype=np.float32), direction.locus, np.ones(2), -np.ones(2))
    edits = [*ablation(direction), *addition(direction), *ablation_at_every_layer(direction, 4)]
    assert {edit.site for edit in [*edits, *subspace_ablation(span), *subspace_addition(span)]} == {where}
    edited = streams(tiny, tiny_rows[0], ablation(direction), where=where)
    last = len(tiny_rows[0].token_ids) - 1
    assert edited[1, last:].tolist() == pytest.approx([-2.0] * 3, abs=1e-4)


def test_adding_adds_the_gap_once(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    last = len(tiny_rows[0].token_ids) - 1
    plain, edited = (streams(tiny, tiny_rows[0], edits) for edits in ([], addition(DIRECTION)))
    torch.testing.assert_close(edited[1, last:], plain[1, last:] + 5.0, atol=1e-4, rtol=0)
    assert torch.equal(plain[:, :last], edited[:, :last])


def test_everywhere_leaves_nothing_along_it(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    edited = streams(tiny, tiny_rows[0], ablation_at_every_layer(DIRECTION, tiny.n_layers))
    assert edited.abs().max() < 1e-4


def test_an_edit_is_named_by_all_it_does() -> None:
    moved = replace(DIRECTION, vector=-DIRECTION.vector)
    shifted = replace(DIRECTION, mean_negative=-2.5)
    trials = [ablation(DIRECTION, variant) for variant in VARIANTS]
    trials += [addition(DIRECTION), ablation_at_every_layer(DIRECTION, 4), ablation(moved), ablation(shifted)]
    names = [tuple((edit.site, edit.layer, edit.key) for edit in edits) for edits in trials]
    assert len(set(names)) == len(names)
    assert all(edit.key for edits in trials for edit in edits)
    again = ablation(replace(DIRECTION, vector=DIRECTION.vector.copy()))
    assert [edit.key for edit in again] == [edit.key for edit in ablation(DIRECTION)]


def test_it_reaches_later_layers_only_with_their_class_means() -> None:
    later = Variant(layers="later")
    assert covers_layers(DIRECTION, later, 4)
    assert not covers_layers(DIRECTION, later, 5)
    assert covers_layers(replace(DIRECTION, later_means={}), DEFAULT, 5)
