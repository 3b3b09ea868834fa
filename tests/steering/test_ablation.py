"""Each ablation variant has its stated effect, at the stated layers and tokens, and a key of its own."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import SITES, Edit, Site, reader
from probes.direction import Locus, Subspace
from steering.ablation import (
    ablation,
    ablation_at_every_layer,
    addition,
    covers_layers,
    setting,
    subspace_ablation,
    subspace_addition,
)
from steering.ablation_variant import DEFAULT, VARIANTS, Variant

LOCUS = Locus("resid_post", 1, "post_last")
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 3)))[0].T.astype(np.float32)
ON, OFF = np.array([3.0, 1.0, -1.0]), np.array([-2.0, 0.5, 4.0])
LATER = {2: (ON + 1, OFF + 1), 3: (ON + 2, OFF + 2)}
SUBSPACE = Subspace("s", BASIS, LOCUS, ON, OFF, later_means=LATER)
DIRECTION = SUBSPACE.direction(0)
SPANS = pytest.mark.parametrize("span", [Subspace.of(DIRECTION), SUBSPACE], ids=["direction", "subspace"])
WAYS = [pytest.param(subspace_ablation(SUBSPACE, variant), id=variant.name) for variant in VARIANTS]
WAYS.append(pytest.param(subspace_addition(SUBSPACE), id="addition"))


def projections(
    model: ChatModel, row: Rendered, edits: list[Edit], span: Subspace = SUBSPACE, where: Site = "resid_post"
) -> tuple[Tensor, Tensor]:
    """Return the stream along the basis and across it, at every layer, of a prompt and two tokens after it."""
    seen: list[Tensor] = []
    batch = replace(model.pad([[*row.token_ids, 20, 21]], "left"), prompt_length=len(row.token_ids))
    look = [reader(where, layer, lambda stream, _: seen.append(stream[0].double())) for layer in range(model.n_layers)]
    with model.editing([*edits, *look]):
        model.logits(batch)
    streams, basis = torch.stack(seen), torch.tensor(span.basis).double()
    return streams @ basis.T, streams - streams @ basis.T @ basis


@SPANS
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_it_sets_every_projection_at_its_layers_and_tokens_only(variant, span, tiny, tiny_rows) -> None:
    row, on, off = tiny_rows[0], ON[: span.rank], OFF[: span.rank]
    last, n = len(row.token_ids) - 1, len(row.token_ids) + 2
    placed = [], subspace_ablation(span, variant)
    (plain, across), (edited, left) = (projections(tiny, row, edits, span) for edits in placed)
    assert torch.equal(plain[:, :last], edited[:, :last])
    assert torch.equal(plain[0], edited[0])  # below its layer nothing changes
    torch.testing.assert_close(left[1], across[1], atol=1e-5, rtol=0)  # what is outside the subspace stays
    layers = [1, 2, 3] if variant.layers == "later" else [1]
    written = [last] if variant.tokens == "last_prompt" else list(range(last, n))
    for layer, token in itertools.product([1, 2, 3], range(last, n)):
        goals = {"affine": off + layer - 1, "zero": 0 * off}
        goal = goals.get(variant.form, plain[layer, token].numpy() - (on - off))
        reached = bool(np.allclose(edited[layer, token], goal, atol=1e-4))
        assert reached == (layer in layers and token in written)


@pytest.mark.parametrize("where", SITES)
def test_it_sets_the_projection_at_the_site_that_its_class_means_belong_to(where, tiny, tiny_rows) -> None:
    direction, span = (replace(one, locus=Locus(where, 1, "post_last")) for one in (DIRECTION, SUBSPACE))
    edits = [*ablation(direction), *addition(direction), *ablation_at_every_layer(direction, 4)]
    assert {edit.site for edit in [*edits, *subspace_ablation(span), *subspace_addition(span)]} == {where}
    edited, _ = projections(tiny, tiny_rows[0], ablation(direction), where=where)
    assert edited[1, -3:, 0].tolist() == pytest.approx([OFF[0]] * 3, abs=1e-4)


@SPANS
def test_adding_adds_every_gap_once(span, tiny, tiny_rows) -> None:
    last, gap = len(tiny_rows[0].token_ids) - 1, torch.tensor(ON - OFF)[: span.rank]
    (plain, _), (edited, _) = (projections(tiny, tiny_rows[0], e, span) for e in ([], subspace_addition(span)))
    torch.testing.assert_close(edited[1, last:], plain[1, last:] + gap, atol=1e-4, rtol=0)
    assert torch.equal(plain[:, :last], edited[:, :last])


def test_everywhere_leaves_nothing_along_it(tiny, tiny_rows) -> None:
    edited, _ = projections(tiny, tiny_rows[0], ablation_at_every_layer(DIRECTION, tiny.n_layers))
    assert edited[..., 0].abs().max() < 1e-4


def test_an_edit_is_named_by_all_it_does() -> None:
    one, trials = Subspace.of(DIRECTION), [ablation_at_every_layer(DIRECTION, 4)]
    for span in (one, SUBSPACE):
        other, shifted = replace(span, basis=-span.basis), replace(span, mean_negative=span.mean_negative + 0.5)
        trials += [subspace_ablation(span, variant) for variant in VARIANTS]
        trials += [subspace_addition(span), subspace_ablation(other), subspace_ablation(shifted)]
    trials += [[setting(SUBSPACE, 1, ON, "last_on", strength)] for strength in (0.25, 0.5, 1.0)]
    names = [tuple((edit.site, edit.layer, edit.key) for edit in edits) for edits in trials]
    assert len(set(names)) == len(names)
    assert all(edit.key for edits in trials for edit in edits)
    same = [(subspace_ablation(one), ablation(DIRECTION)), (subspace_addition(one), addition(DIRECTION))]
    for by_span, by_direction in same:
        assert [edit.key for edit in by_span] == [edit.key for edit in by_direction]


def test_it_reaches_later_layers_only_with_their_class_means() -> None:
    later = Variant(layers="later")
    assert covers_layers(DIRECTION, later, 4)
    assert not covers_layers(DIRECTION, later, 5)
    assert covers_layers(replace(DIRECTION, later_means={}), DEFAULT, 5)


@pytest.mark.parametrize("edits", WAYS)
def test_with_and_without_the_cache_in_a_batch_and_alone_the_same_is_said(edits, tiny, tiny_rows) -> None:
    batch = tiny.batch(tiny_rows)
    plain = tiny.generate(batch, 6, 6)
    with tiny.editing(edits):
        together = tiny.generate(batch, 6, 6)
        assert together != plain
        assert tiny.generate(batch, 6, 6, use_cache=False) == together
        assert [tiny.generate(tiny.batch([row]), 6, 6)[0] for row in tiny_rows] == together
