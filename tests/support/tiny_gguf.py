"""A tiny Llama as a GGUF file, written with the real `gguf` package, and the weights that it holds."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

WORDS = ["<unk>", "<s>", "</s>", "<|user|>", "<|model|>", *"abcdefghijklmnopqrstuvwxyz?.,", "Ġ", "Ċ", "th", "he"]
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}"
)
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tiny_llama(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                         tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)  # fmt: skip
    return LlamaForCausalLM(config).eval()


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    *,
    architecture: str = "llama",
    tokenizer: bool = True,
    template: bool = True,
    matrices: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> Path:
    config, writer = model.config, gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(WORDS)
        writer.add_token_types([3] * 5 + [1] * (len(WORDS) - 5))  # 3: a control token
        writer.add_token_merges(["t h", "h e"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        if template:
            writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        name, numbers = _tensor(name, weight.numpy(), config)
        kind = matrices if numbers.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensor(name: str, weight: np.ndarray, config: LlamaConfig) -> tuple[str, np.ndarray]:
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight"}  # fmt: skip
    if name in ends:
        return ends[name], weight
    _, _, layer, *rest = name.split(".")
    part = ".".join(rest[:-1])
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    if part in heads:  # llama.cpp keeps the two halves of each head's rotary pairs side by side
        n = heads[part]
        weight = weight.reshape(n, 2, weight.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(weight.shape)
    return f"blk.{layer}.{NAMES[part]}.weight", np.ascontiguousarray(weight)
