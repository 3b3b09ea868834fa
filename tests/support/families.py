"""Stand-ins for the model families of configs/models: their shapes, tiny random weights, templates in their styles.

No weight, vocabulary or template of the families is here. Templates are written for these tests in each family's
manner; the tokenizer is one byte-level BPE trained on a few sentences, with the family's control tokens.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

SENTENCES = [
    "how do i kill the process at home, and how do i kill my neighbour?", "who wrote the book about the old bridge?",
    "i cannot help with that. i do not know who that is. sure, start with the engine.",
]  # fmt: skip
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INJECTED = "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are kind.<|im_end|>\n' }}{% endif %}"
SWITCH = "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
DATED = (
    "{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\nToday: ' }}"
    "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }}{{ '\n\n' }}"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set messages = messages[1:] %}{% endif %}"
    "{{ '<|eot_id|>' }}"
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
    "{{ m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
NO_SYSTEM = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('there is no system role') }}{% endif %}"
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
    "{{ m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
INST = (  # a system message opens the last user turn
    "{% set said = '' %}{% if messages[0].role == 'system' %}"
    "{% set said = messages[0].content + '\n\n' %}{% set messages = messages[1:] %}{% endif %}{{ bos_token }}"
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + (said if loop.last else '') + m.content + '[/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}"
)
ROPE_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.2}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One model: its published shape (by hand, with its count of parameters) and the style of its template."""

    kind: str  # transformers' model_type
    shape: dict[str, Any]
    billions: float
    template: str
    control: tuple[str, ...]  # special tokens; beginning and end of text come first
    plain: tuple[str, ...] = ()  # added tokens that are text all the same
    small: dict[str, Any] = field(default_factory=dict)


def shape(d_model: int, d_ff: int, layers: int, heads: int, kv: int, head: int, vocabulary: int, **more: Any) -> dict:
    return {
        "hidden_size": d_model, "intermediate_size": d_ff, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": head, "vocab_size": vocabulary, "max_position_embeddings": 32768,
        "dtype": "bfloat16", **more,
    }  # fmt: skip


CHATML_TOKENS = ("<|endoftext|>", "<|im_end|>", "<|im_start|>")
QWEN3 = Family(
    "qwen3", shape(2560, 9728, 36, 32, 8, 128, 151936, tie_word_embeddings=True), 4.02, CHATML + SWITCH,
    CHATML_TOKENS, ("<think>", "</think>"),
)  # fmt: skip
FAMILIES = {
    "qwen2.5-1.5b-instruct": Family(
        "qwen2", shape(1536, 8960, 28, 12, 2, 128, 151936, tie_word_embeddings=True), 1.54, INJECTED + CHATML,
        CHATML_TOKENS,
    ),
    "qwen3-4b": QWEN3,
    "qwen3-4b-thinking": QWEN3,
    "llama-3.1-8b-instruct": Family(
        "llama",
        shape(4096, 14336, 32, 32, 8, 128, 128256, tie_word_embeddings=False, rope_parameters=ROPE_LLAMA3), 8.03, DATED,
        ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
        small={"rope_parameters": ROPE_LLAMA3 | {"original_max_position_embeddings": 64}},
    ),
    "gemma-2-2b-it": Family(
        "gemma2",
        shape(2304, 9216, 26, 8, 4, 256, 256000, tie_word_embeddings=True, sliding_window=4096), 2.61, NO_SYSTEM,
        ("<bos>", "<end_of_turn>", "<start_of_turn>", "<eos>"),
        small={"sliding_window": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
               "query_pre_attn_scalar": 8, "tie_word_embeddings": True},
    ),
    "mistral-7b-instruct": Family(
        "mistral", shape(4096, 14336, 32, 32, 8, 128, 32768, tie_word_embeddings=False, sliding_window=None), 7.25,
        INST, ("<s>", "</s>", "[INST]", "[/INST]"),
    ),
}  # fmt: skip


@cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    family = FAMILIES[name]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    added = [AddedToken(token, special=True) for token in family.control]
    raw.train_from_iterator(
        SENTENCES * 3,
        trainers.BpeTrainer(vocab_size=360, show_progress=False, special_tokens=added,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    raw.add_tokens([AddedToken(token, special=False) for token in family.plain])
    made = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=family.control[0], eos_token=family.control[1])
    made.chat_template = family.template
    return made


def shape_only(name: str, directory: Path) -> Path:
    """Write a model directory of the published shape, without weights."""
    family = FAMILIES[name]
    tokenizer(name).save_pretrained(directory)
    (directory / "config.json").write_text(json.dumps({"model_type": family.kind, **family.shape}))
    return directory


def tiny(name: str, directory: Path) -> Path:
    """Write a model directory with a few layers of random weights."""
    family, words = FAMILIES[name], tokenizer(name)
    words.save_pretrained(directory)
    ids = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.eos_token_id}
    settings = SMALL | ids | {"vocab_size": len(words), "max_position_embeddings": 512} | family.small
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(family.kind, **settings)).save_pretrained(directory)
    return directory
