"""A model that thinks the same words and gives the same answer to every prompt."""

import copy
from itertools import pairwise

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from extract.model.chat_model import ChatModel

CHAIN = ("fix", "the", "door", "lock")  # what it thinks, and then "open" is its answer


def thinker(tokenizer: PreTrainedTokenizerBase, opens: bool) -> ChatModel:
    """Make a model of one answer (`opens`: with its own `<think>`), whose streams are its tokens' embeddings."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = "{{ messages[-1]['content'] }} " + ("is" if opens else "<think>")
    words = ["is", "<think>", *CHAIN, "</think>", "open", tokenizer.eos_token]
    ids = [tokenizer.encode(word, add_special_tokens=False) for word in words]
    assert [len(each) for each in ids] == [1] * len(words)
    n = len(tokenizer)
    shape = LlamaConfig(vocab_size=n, hidden_size=n, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1,
                        head_dim=8, eos_token_id=tokenizer.eos_token_id)  # fmt: skip
    model = LlamaForCausalLM(shape)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(n))
        model.lm_head.weight.zero_()
        for (before,), (after,) in pairwise(ids):
            model.lm_head.weight[after, before] = 1.0
    return ChatModel(model, tokenizer, "thinker")
