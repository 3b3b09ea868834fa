"""A packed row gives the same results as two separate rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from organisms.grammar import Example, Grammar
from organisms.interchange import Branches, PlantedLayers, Swaps
from organisms.planting import coordinates, planted_vectors, set_coordinates
from organisms.spec import OrganismSpec
from organisms.training import Packer, build_model

N = 6
OBLIQUE = {
    "layer": 1,
    "variables": [{"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}],
    "cosines": [{"between": ["normative", "epistemic"], "value": 0.6}],
}


@pytest.fixture(scope="module")
def spec(organism: Callable[..., OrganismSpec]) -> OrganismSpec:
    return organism(planted=OBLIQUE, model={"n_layers": 4, "d_model": 32, "n_heads": 2, "d_mlp": 64})


@pytest.fixture(scope="module")
def model(spec: OrganismSpec, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    model = build_model(spec, tokenizer).eval()
    with torch.no_grad():  # far from its nearly linear start, so that what a token sees matters
        for parameter in model.parameters():
            parameter.mul_(4.0 if parameter.ndim > 1 else 1.0)
    return model


@pytest.fixture(scope="module")
def examples(grammar: Grammar) -> list[Example]:
    rng = np.random.default_rng(0)
    return [grammar.training_example(rng) for _ in range(N)]


@pytest.fixture(scope="module")
def texts(grammar: Grammar, examples: list[Example]) -> tuple[list[str], list[str]]:
    plain = [grammar.respond(e, e.values) for e in examples]
    return plain, [grammar.respond(e, (not e.values[0], not e.values[1])) for e in examples]


@pytest.fixture(scope="module")
def packed(tokenizer: PreTrainedTokenizerFast, grammar: Grammar, examples: list[Example]) -> Branches:
    return Packer(tokenizer).pack(grammar, examples, ~np.array([example.values for example in examples]))


def _separate_loss(
    model: LlamaForCausalLM,
    packer: Packer,
    examples: list[Example],
    texts: list[str],
    edit: Callable[[Tensor, int, int], Tensor] | None = None,
) -> float:
    """Return the mean cross-entropy of the responses' tokens, one unpacked forward pass a row."""
    total, count = 0.0, 0
    for row, (example, text) in enumerate(zip(examples, texts, strict=True)):
        prompt, response = packer.prompt(example), [*packer.ids(text), model.config.eos_token_id]
        handle = None
        last = len(prompt) - 1
        if edit is not None:
            handle = model.model.layers[1].register_forward_hook(
                lambda _m, _a, out, row=row, last=last: edit(out, row, last)
            )
        with torch.no_grad():
            logits = model(torch.tensor([prompt + response]), use_cache=False).logits[0]
        if handle is not None:
            handle.remove()
        predicted = logits[last:-1]
        total += float(functional.cross_entropy(predicted, torch.tensor(response), reduction="sum"))
        count += len(response)
    return total / count


def _packed_losses(
    model: LlamaForCausalLM, spec: OrganismSpec, packed: Branches, sources: Tensor, swapped: Tensor, onwards: Tensor
) -> tuple[float, float, Tensor]:
    with torch.no_grad():
        none = torch.zeros(N, dtype=torch.bool)
        swaps = Swaps(sources, swapped, onwards, none, torch.arange(N), none, None)
        planter = PlantedLayers(model.model, model.lm_head, spec.planted, planted_vectors(spec))
        (plain, interchange), seen = planter.forward(packed, swaps)
    return float(plain), float(interchange), planter.read(seen)[..., 0]


def _nothing() -> tuple[Tensor, Tensor, Tensor]:
    return torch.arange(N), torch.zeros(N, 2, dtype=torch.bool), torch.zeros(N, dtype=torch.bool)


def test_both_losses_equal_those_of_separate_forward_passes(
    model: LlamaForCausalLM,
    spec: OrganismSpec,
    packed: Branches,
    tokenizer: PreTrainedTokenizerFast,
    examples: list[Example],
    texts: tuple[list[str], list[str]],
) -> None:
    plain, branch, _ = _packed_losses(model, spec, packed, *_nothing())
    packer = Packer(tokenizer)
    assert plain == pytest.approx(_separate_loss(model, packer, examples, texts[0]), abs=1e-5)
    assert branch == pytest.approx(_separate_loss(model, packer, examples, texts[1]), abs=1e-5)
    assert abs(plain - branch) > 1e-3


def test_a_branch_that_saw_the_plain_response_would_be_noticed(
    model: LlamaForCausalLM, spec: OrganismSpec, packed: Branches
) -> None:
    """The control: with ordinary causal attention the branch's loss is another one."""
    length = packed.tokens.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()[None, None].expand(N, 1, -1, -1)
    leaking = replace(packed, visible=causal)
    plain, branch, _ = _packed_losses(model, spec, packed, *_nothing())
    leaking_plain, leaking_branch, _ = _packed_losses(model, spec, leaking, *_nothing())
    assert leaking_plain == pytest.approx(plain, abs=1e-6)
    assert abs(leaking_branch - branch) > 1e-3


@pytest.mark.parametrize("onwards", [False, True])
@pytest.mark.parametrize("variables", [[True, False], [False, True], [True, True]])
def test_an_interchange_changes_the_branch_as_a_separate_edit_would_and_the_plain_response_not_at_all(
    model: LlamaForCausalLM,
    spec: OrganismSpec,
    packed: Branches,
    tokenizer: PreTrainedTokenizerFast,
    examples: list[Example],
    texts: tuple[list[str], list[str]],
    variables: list[bool],
    onwards: bool,
) -> None:
    sources, none, _ = _nothing()
    sources = sources.roll(1)
    swapped = none | torch.tensor(variables)
    plain, branch, read = _packed_losses(model, spec, packed, *_nothing())
    swapped_plain, swapped_branch, _ = _packed_losses(model, spec, packed, sources, swapped, torch.full((N,), onwards))
    assert swapped_plain == plain
    assert abs(swapped_branch - branch) > 1e-4
    vectors = planted_vectors(spec)

    def edit(stream: Tensor, row: int, last: int) -> Tensor:
        steps = torch.arange(stream.shape[1])
        here = (steps >= last) if onwards else (steps == last)
        where = here[None, :, None] & swapped[row]
        target = read[sources[row]].expand(*stream.shape[:2], -1)
        return set_coordinates(stream, target, where, vectors)

    expected = _separate_loss(model, Packer(tokenizer), examples, texts[1], edit)
    assert swapped_branch == pytest.approx(expected, abs=1e-5)


def test_the_model_is_left_without_hooks_and_the_read_is_that_of_the_last_prompt_token(
    model: LlamaForCausalLM,
    spec: OrganismSpec,
    packed: Branches,
    tokenizer: PreTrainedTokenizerFast,
    examples: list[Example],
) -> None:
    _, _, read = _packed_losses(model, spec, packed, *_nothing())
    assert not any(layer._forward_hooks for layer in model.model.layers)
    for row, example in enumerate(examples):
        with torch.no_grad():
            prompt = torch.tensor([Packer(tokenizer).prompt(example)])
            stream = model(prompt, output_hidden_states=True).hidden_states[2][0, -1]  # resid_post[1]
        alone = coordinates(stream, planted_vectors(spec))
        torch.testing.assert_close(read[row], alone, atol=1e-4, rtol=1e-4)
