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
from probes.direction import Direction, Locus, Subspace
from probes.means import unit
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


# -- subspace ablation ----------------------------------------------------------------------------------------------


BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 3)))[0].T.astype(np.float32)
ON, OFF = np.array([3.0, 1.0, -1.0]), np.array([-2.0, 0.5, 4.0])
SPAN_LATER = {2: (ON + 1, OFF + 1), 3: (ON + 2, OFF + 2)}
SUBSPACE = Subspace("s", BASIS, Locus("resid_post", 1, "post_last"), ON, OFF, later_means=SPAN_LATER)
OF_RANK_ONE = Direction("d", unit(np.arange(32.0)), SUBSPACE.locus, 3.0, -2.0, later_means={2: (4.0, -4.0)})
WAYS = [pytest.param(subspace_ablation(SUBSPACE, variant), id=variant.name) for variant in VARIANTS]
WAYS.append(pytest.param(subspace_addition(SUBSPACE), id="addition"))


def projections(model: ChatModel, row: Rendered, edits: list[Edit]) -> tuple[Tensor, Tensor]:
    """Return the stream along the basis and across it, at every layer, of a prompt and two tokens after it."""
    seen: list[Tensor] = []

    def look(stream: Tensor, _pass: Pass) -> Tensor:
        seen.append(stream[0].double())
        return stream

    batch = replace(model.pad([[*row.token_ids, 20, 21]], "left"), prompt_length=len(row.token_ids))
    with model.editing([*edits, *(Edit("resid_post", layer, look) for layer in range(model.n_layers))]):
        model.logits(batch)
    streams, basis = torch.stack(seen), torch.tensor(BASIS).double()
    return streams @ basis.T, streams - streams @ basis.T @ basis


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_it_sets_every_projection_at_its_layers_and_tokens_only(
    variant: Variant, tiny: ChatModel, tiny_rows: list[Rendered]
) -> None:
    row = tiny_rows[0]
    last, n = len(row.token_ids) - 1, len(row.token_ids) + 2
    (plain, across), (edited, left) = (
        projections(tiny, row, edits) for edits in ([], subspace_ablation(SUBSPACE, variant))
    )
    assert torch.equal(plain[:, :last], edited[:, :last])
    assert torch.equal(plain[0], edited[0])
    torch.testing.assert_close(left[1], across[1], atol=1e-5, rtol=0)  # what is outside the subspace stays
    layers = [1, 2, 3] if variant.layers == "later" else [1]
    tokens = [last] if variant.tokens == "last_prompt" else list(range(last, n))
    for layer, token in itertools.product(layers, tokens):
        goal = {"affine": OFF + layer - 1, "zero": 0 * OFF}.get(variant.form, plain[layer, token].numpy() - (ON - OFF))
        np.testing.assert_allclose(edited[layer, token], goal, atol=1e-4)
    for layer, token in itertools.product([2, 3], range(last, n)):
        if layer not in layers:
            assert (edited[layer, token] - torch.tensor(OFF + layer - 1)).abs().max() > 1e-3


def test_adding_adds_every_gap_once(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    last = len(tiny_rows[0].token_ids) - 1
    (plain, _), (edited, _) = (projections(tiny, tiny_rows[0], e) for e in ([], subspace_addition(SUBSPACE)))
    torch.testing.assert_close(edited[1, last:], plain[1, last:] + torch.tensor(ON - OFF), atol=1e-4, rtol=0)
    assert torch.equal(plain[:, :last], edited[:, :last])


def test_rank_one_is_bitwise_the_direction(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    batch, one = tiny.batch(tiny_rows), Subspace.of(OF_RANK_ONE)
    pairs = [(subspace_ablation(one, v), ablation(OF_RANK_ONE, v)) for v in VARIANTS]
    for ours, theirs in [*pairs, (subspace_addition(one), addition(OF_RANK_ONE))]:
        assert [(e.site, e.layer, e.key) for e in ours] == [(e.site, e.layer, e.key) for e in theirs]
        with tiny.editing(ours):
            found = tiny.logits(batch)
        with tiny.editing(theirs):
            assert torch.equal(found, tiny.logits(batch))


def test_an_edit_of_a_subspace_is_named_by_all_it_does() -> None:
    turned = replace(SUBSPACE, basis=SUBSPACE.basis[[1, 0, 2]])
    shifted = replace(SUBSPACE, mean_negative=OFF + 0.5)
    trials = [subspace_ablation(SUBSPACE, variant) for variant in VARIANTS]
    trials += [subspace_addition(SUBSPACE), subspace_ablation(turned), subspace_ablation(shifted)]
    names = [tuple((edit.site, edit.layer, edit.key) for edit in edits) for edits in trials]
    assert len(set(names)) == len(names)
    assert all(edit.key for edits in trials for edit in edits)


@pytest.mark.parametrize("edits", WAYS)
def test_with_and_without_the_cache_in_a_batch_and_alone_the_same_is_said(
    edits: list[Edit], tiny: ChatModel, tiny_rows: list[Rendered]
) -> None:
    batch = tiny.batch(tiny_rows)
    plain = tiny.generate(batch, 6, 6)
    with tiny.editing(edits):
        together = tiny.generate(batch, 6, 6)
        assert together != plain
        assert tiny.generate(batch, 6, 6, use_cache=False) == together
        assert [tiny.generate(tiny.batch([row]), 6, 6)[0] for row in tiny_rows] == together
