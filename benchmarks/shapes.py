"""Randomly initialised models with the shapes of real ones, so that a speed benchmark downloads nothing."""

from __future__ import annotations

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from extract.shipped import ROOT

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"  # its tokenizer is used for all models
ON_GPU = torch.cuda.is_available()


def random_model(quick: bool) -> PreTrainedModel:
    """Return a model of Qwen2.5-0.5B shape in float32, on a GPU of Llama-3.1-8B shape in bfloat16; tiny if `quick`."""
    torch.manual_seed(0)
    if quick:
        return small_model(d_model=64).to("cuda" if ON_GPU else "cpu")
    if not ON_GPU:
        return Qwen2ForCausalLM(_qwen())
    shape = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
    )
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            return LlamaForCausalLM(shape)
        finally:
            torch.set_default_dtype(torch.float32)


def small_model(d_model: int) -> PreTrainedModel:
    """Return a model with three small layers of a given width, in float32 on the CPU."""
    changed = {"hidden_size": d_model, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 2000}
    return Qwen2ForCausalLM(_qwen(num_attention_heads=4, **changed))


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """Copy a model's modules but share its weights, so that hooks on one do not affect the other."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _qwen(**changed: int) -> Qwen2Config:
    shape = {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "vocab_size": 151936,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    }
    return Qwen2Config(**(shape | changed), tie_word_embeddings=True)
