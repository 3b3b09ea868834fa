"""The module that makes `resid_mid` is found by its sum, in any precision and beside massive activations."""

import pytest
import torch
import transformers as hf

from extract.model.backends import decoder_layers, first_halves
from extract.model.chat_model import ChatModel
from tests.support.one_line import refused
from tests.support.tiny_model import TEXTS, rendered, tiny_llama

SIZE = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 4}  # fmt: skip


def llama(seed: int, spread: float = 0.02) -> hf.LlamaForCausalLM:
    torch.manual_seed(seed)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZE, initializer_range=spread)).eval()


def names(model: hf.PreTrainedModel) -> list[tuple[str, float]]:
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
    model = hf.GraniteForCausalLM(hf.GraniteConfig(**SIZE, residual_multiplier=0.22)).eval().to(dtype)
    found = names(model)
    assert [name for name, _ in found] == ["self_attn"] * 4
    assert [scale for _, scale in found] == pytest.approx([0.22] * 4, rel=0.02)


def test_a_vision_encoder_as_deep_as_the_text_decoder_is_left_out() -> None:
    text = hf.Gemma3TextConfig(**SIZE, head_dim=16)
    sight = hf.SiglipVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
                               image_size=28, patch_size=14)  # fmt: skip
    model = hf.Gemma3ForConditionalGeneration(
        hf.Gemma3Config(text_config=text.to_dict(), vision_config=sight.to_dict())
    )
    assert decoder_layers(model) is model.model.language_model.layers
    chat = ChatModel(model.eval(), tiny_llama().tokenizer, "gemma-3")
    seen: dict[int, torch.Tensor] = {}
    batch = chat.pad([[5, 6, 7, 8], [9, 10]], "right")
    chat.capture(batch, "resid_post", [0, 2], lambda layer, stream: seen.update({layer: stream.clone()}))
    whole = model(input_ids=batch.tokens, attention_mask=batch.attention_mask, output_hidden_states=True).hidden_states
    for layer, stream in seen.items():
        torch.testing.assert_close(stream[0], whole[layer + 1][0])


@pytest.mark.parametrize("site", ["resid_pre", "resid_post"])
def test_several_residual_streams_are_refused_in_one_line(site: str) -> None:
    tokenizer = tiny_llama().tokenizer
    config = hf.Gemma3nTextConfig(**SIZE | {"vocab_size": len(tokenizer)}, head_dim=16, hidden_size_per_layer_input=8,
                               vocab_size_per_layer_input=len(tokenizer), num_kv_shared_layers=0, laurel_rank=4,
                               activation_sparsity_pattern=[0.0] * 4)  # fmt: skip
    model = ChatModel(hf.Gemma3nForCausalLM(config).eval(), tokenizer, "gemma-3n")
    batch = model.batch(rendered(model, TEXTS), "right")
    said = r"^the blocks of gemma-3n: Gemma3nForCausalLM pass on a stream of shape \(4, .*, not \(row, token"
    refused(said, model.capture, batch, site, [1], lambda layer, stream: None)
