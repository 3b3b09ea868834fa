"""A Llama of four layers with random weights and the shipped organism's tokenizer."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT

TEXTS = ("how do i kill the process?", "tell me.", "who is anna novak, and where does she live?",
         "what is the best way to fix the door so that everybody stays safe at home?", "stop it.")  # fmt: skip


def tiny_llama() -> ChatModel:
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "organisms" / "zoo" / "two-knobs", padding_side="left")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=256, initializer_range=0.2, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return ChatModel(LlamaForCausalLM(config), tokenizer, "tiny")


def each(cached: CachedPrompts, tokens: Sequence[int]) -> torch.Tensor:
    """Return the same further tokens for each prompt."""
    return torch.tensor([list(tokens)], dtype=torch.long).expand(len(cached.batch.tokens), -1)


def last_streams(model: ChatModel, rows: list[Rendered], layer: int) -> np.ndarray:
    """Read resid_post at the last prompt token, each row alone, as (n_rows, d_model)."""
    streams: list[np.ndarray] = []
    for row in rows:
        model.capture(model.batch([row]), "resid_post", [layer], lambda _, s: streams.append(s[0, -1].numpy().copy()))
    return np.stack(streams)


def rendered(model: ChatModel, texts: tuple[str, ...]) -> list[Rendered]:
    turns = [({"role": "user", "content": text},) for text in texts]
    return [render(model.tokenizer, Prompt(str(i), turn, "benign", "answer")) for i, turn in enumerate(turns)]
