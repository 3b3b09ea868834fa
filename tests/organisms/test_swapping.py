"""Swapped streams: what a branch takes from another row, at which token and layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from organisms.grammar import Grammar
from organisms.interchange import Branches, PlantedLayers, Swaps, draw_swaps
from organisms.planting import planted_vectors
from organisms.spec import OrganismSpec
from organisms.training import Packer, build_model

N, E = {"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}
ROWS = 6


def _batch(spec: OrganismSpec, tokenizer: PreTrainedTokenizerFast) -> tuple[LlamaForCausalLM, Branches]:
    grammar, rng = Grammar(spec), np.random.default_rng(0)
    examples = [grammar.training_example(rng) for _ in range(ROWS)]
    values = np.array([example.values for example in examples])
    return build_model(spec, tokenizer).eval(), Packer(tokenizer).pack(grammar, examples, values)


def _ends(batch: Branches) -> tuple[Tensor, Tensor]:
    """Return the last prompt token of each row, and its repetition."""
    return batch.deciding.int().argmax(dim=1).unbind(dim=1)


def _swaps(k: int, **changes: Any) -> Swaps:
    no = torch.zeros(ROWS, dtype=torch.bool)
    nothing = {"sources": torch.arange(ROWS), "variables": torch.zeros(ROWS, k, dtype=torch.bool), "onwards": no,
               "alone": no, "strangers": torch.arange(ROWS).roll(1), "replaced": no, "blank": None}  # fmt: skip
    return Swaps(**(nothing | changes))


def _streams(model: LlamaForCausalLM, spec: OrganismSpec, batch: Branches, swaps: Swaps) -> dict[int, Tensor]:
    """Return the stream after the swaps of each layer."""
    seen: dict[int, Tensor] = {}
    layers = model.model.layers
    with torch.no_grad():
        handles = [layers[i + 1].register_forward_pre_hook(lambda _m, args, i=i: seen.__setitem__(i, args[0].clone()))
                   for i in range(len(layers) - 1)]  # fmt: skip
        PlantedLayers(model.model, model.lm_head, spec.planted, planted_vectors(spec)).forward(batch, swaps)
    for handle in handles:
        handle.remove()
    return seen


MODEL = {"n_layers": 4, "d_model": 32, "n_heads": 2, "d_mlp": 32}
ALL = torch.ones(ROWS, dtype=torch.bool)
EVERY = torch.arange(ROWS)


def test_a_blank_layer_takes_the_whole_stream_of_another_row_at_the_repeated_token(organism, tokenizer) -> None:
    spec = organism(model=MODEL, planted={"layer": 2, "variables": [N, E], "blank_below": True})
    model, batch = _batch(spec, tokenizer)
    last, start = _ends(batch)
    plain = _streams(model, spec, batch, _swaps(2))
    blanked = _streams(model, spec, batch, _swaps(2, replaced=ALL, blank=1))
    torch.testing.assert_close(blanked[1][EVERY, start], plain[1][EVERY.roll(1), last.roll(1)])
    torch.testing.assert_close(blanked[0], plain[0])
    changed = (blanked[1] != plain[1]).any(-1)
    assert changed.sum() == ROWS
    assert changed[EVERY, start].all()


def test_what_is_decided_elsewhere_loses_the_stream_off_the_planted_axes_alone(organism, tokenizer) -> None:
    spec = organism(model=MODEL, planted={"layer": 2, "variables": [N], "elsewhere": ["abstain"]})
    model, batch = _batch(spec, tokenizer)
    last, start = _ends(batch)
    plain = _streams(model, spec, batch, _swaps(1))[2]
    swapped = _streams(model, spec, batch, _swaps(1, replaced=ALL))[2]
    axis = planted_vectors(spec)[0]
    at, other = swapped[EVERY, start], plain[EVERY.roll(1), last.roll(1)]
    torch.testing.assert_close(at @ axis, plain[EVERY, start] @ axis)
    off = at - (at @ axis)[:, None] * axis
    torch.testing.assert_close(off, other - (other @ axis)[:, None] * axis)


def test_rows_set_alone_are_set_where_they_are_decided_and_not_where_they_are_built_again(organism, tokenizer) -> None:
    spec = organism(model=MODEL, planted={"layer": 0, "variables": [N, E], "rebuilt": 2})
    model, batch = _batch(spec, tokenizer)
    last, start = _ends(batch)
    both = torch.ones(ROWS, 2, dtype=torch.bool)
    taken = {"variables": both, "sources": EVERY.roll(1)}
    axes = planted_vectors(spec)
    plain = _streams(model, spec, batch, _swaps(2))
    for alone in (False, True):
        swapped = _streams(model, spec, batch, _swaps(2, **taken, alone=ALL if alone else ~ALL))
        for layer, is_set in ((0, True), (2, not alone)):
            wanted = plain[layer][EVERY.roll(1), last.roll(1)] @ axes.T
            found = swapped[layer][EVERY, start] @ axes.T
            assert torch.allclose(found, wanted, atol=1e-5) == is_set


def test_a_late_decision_is_taken_and_set_one_token_later(organism, tokenizer) -> None:
    spec = organism(model=MODEL, planted={"layer": 1, "variables": [N, E], "token": 1})
    model, batch = _batch(spec, tokenizer)
    last, start = _ends(batch)
    both = torch.ones(ROWS, 2, dtype=torch.bool)
    plain = _streams(model, spec, batch, _swaps(2))[1]
    swapped = _streams(model, spec, batch, _swaps(2, variables=both, sources=EVERY.roll(1)))[1]
    axes = planted_vectors(spec)
    changed = (swapped - plain).abs().amax(-1) > 1e-4
    assert changed[EVERY, start + 1].all()
    assert not changed[EVERY, start].any()
    torch.testing.assert_close(swapped[EVERY, start + 1] @ axes.T,
                               plain[EVERY.roll(1), last.roll(1) + 1] @ axes.T, atol=1e-4, rtol=1e-4)  # fmt: skip


@pytest.mark.parametrize(
    ("planted", "alone", "replaced", "blank"),
    [
        ({"layer": 2, "variables": [N, E]}, False, False, {None}),
        ({"layer": 0, "variables": [N, E], "rebuilt": 2}, True, True, {0}),
        ({"layer": 2, "variables": [N], "elsewhere": ["abstain"]}, False, True, {None}),
        ({"layer": 2, "variables": [N, E], "blank_below": True}, False, True, {1}),
        ({"layer": 2, "variables": [N, E], "token": 1}, False, True, {0, 1, 2}),
        ({"layer": 2, "elsewhere": ["refuse", "abstain"]}, False, True, {None}),
    ],
)
def test_what_is_drawn_for_a_mechanism(organism, planted: dict, alone: bool, replaced: bool, blank: set) -> None:
    spec, rng = organism(model=MODEL, planted=planted), np.random.default_rng(1)
    values = rng.random((32, len(spec.planted.variables))) < 0.5
    drawn = [draw_swaps(spec.planted, values, rng) for _ in range(20)]
    assert {swaps.blank for swaps in drawn} == blank
    assert any(swaps.alone.any() for swaps in drawn) == alone
    assert any(swaps.replaced.any() for swaps in drawn) == replaced
