"""Input of a classifier: templates filled with prompt and completion, tokenised and cut to its length."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from extract.errors import UserError
from scoring.judges.config import ClassifierConfig

Encoding = dict[str, list[int]]  # tokenizer output for one text or pair: input_ids, attention_mask and others
USUAL_LENGTH = 512
_MARK = re.compile(r"\{(prompt|completion)\}")


class TextReader:
    """Encodes a prompt and its completion as one text or a pair of texts, and counts truncated ones."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: ClassifierConfig) -> None:
        self.templates = (config.text,) if isinstance(config.text, str) else config.text
        self.reads_prompt = any("{prompt}" in template for template in self.templates)
        self.max_tokens = _length(model, tokenizer, config)
        self.truncated = 0
        self._tokenizer = tokenizer

    def read(self, prompt: str, completion: str) -> Encoding:
        """Return the encoding; if it is too long, the start of the prompt is cut first, then the end."""
        tokens = self._encode(prompt, completion)
        if len(tokens["input_ids"]) <= self.max_tokens:
            return tokens
        self.truncated += 1
        room = self.max_tokens - (len(tokens["input_ids"]) - self._count(prompt) - self._count(completion))
        return self._encode(self._ending(prompt, max(room // 2, room - self._count(completion))), completion, cut=True)

    def padded(self, rows: Sequence[Encoding]) -> BatchEncoding:
        """Return encodings as one padded batch."""
        return self._tokenizer.pad(list(rows), return_tensors="pt", verbose=False)

    def _encode(self, prompt: str, completion: str, *, cut: bool = False) -> Encoding:
        values = {"prompt": prompt, "completion": completion}
        texts = [_MARK.sub(lambda mark: values[mark[1]], template) for template in self.templates]
        limits = {"truncation": True, "max_length": self.max_tokens} if cut else {}
        return dict(self._tokenizer(*texts, verbose=False, **limits))

    def _ending(self, prompt: str, tokens: int) -> str:
        """Return the last part of the prompt, of about `tokens` tokens."""
        there = self._count(prompt)
        return prompt if there <= tokens else prompt[len(prompt) - len(prompt) * max(tokens, 0) // there :]

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: ClassifierConfig) -> int:
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    reads = min(int(tokenizer.model_max_length), int(positions))  # model_max_length is a huge number where unknown
    if config.max_tokens is not None and config.max_tokens > reads:
        raise UserError(f"max_tokens is {config.max_tokens}, but {config.model} reads at most {reads}")
    return config.max_tokens or min(reads, USUAL_LENGTH)
