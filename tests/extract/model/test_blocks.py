"""The module that makes `resid_mid` is found by its sum, in any precision and beside massive activations."""

import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from extract.model.blocks import decoder_layers, first_halves

SIZE = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 4}  # fmt: skip


def llama(seed: int, spread: float = 0.02) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZE, initializer_range=spread)).eval()


def names(model: PreTrainedModel) -> list[tuple[str, float]]:
    of = {module: name for name, module in model.named_modules()}
    return [(of[half.module].rsplit(".", 1)[-1], half.scale)
            for half in first_halves(model, decoder_layers(model), "hooks")]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("massive", [0.0, 100.0, 1000.0, 3000.0])
def test_a_massive_first_token_does_not_hide_the_attention(dtype: torch.dtype, massive: float) -> None:
    model = llama(0)
    with torch.no_grad():
        model.model.embed_tokens.weight[1, 7] += massive  # first of the tokens that the search runs
    assert names(model.to(dtype)) == [("self_attn", 1.0)] * 4


@pytest.mark.parametrize("seed", range(12))
def test_no_norm_is_taken_for_it_in_bfloat16(seed: int) -> None:
    assert names(llama(seed, spread=0.3).to(torch.bfloat16)) == [("self_attn", 1.0)] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_residual_multiplier_is_found(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = GraniteForCausalLM(GraniteConfig(**SIZE, residual_multiplier=0.22)).eval().to(dtype)
    found = names(model)
    assert [name for name, _ in found] == ["self_attn"] * 4
    assert [scale for _, scale in found] == pytest.approx([0.22] * 4, rel=0.02)
