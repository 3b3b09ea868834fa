"""Requests that all end with one suffix: its place among their tokens, and which suffixes keep it when typed as text.

A suffix is kept if the request with its decoded text is tokenised into the same tokens, and nothing around it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int
from transformers import PreTrainedTokenizerBase

from extract.chat.render import Rendered, render
from extract.errors import UserError
from extract.prompts.prompt import Prompt

TRIES = 100  # draws of a random token of a suffix, before none is taken to fit
Suffixes = Int[np.ndarray, "suffixes tokens"]


def usable_tokens(tokenizer: PreTrainedTokenizerBase) -> Int[np.ndarray, " usable"]:
    """Return the tokens of printable ASCII that decode to themselves, without special and added ones."""
    ids = np.setdiff1d(np.arange(tokenizer.vocab_size), list(tokenizer.added_tokens_decoder))
    texts = tokenizer.batch_decode(ids[:, None].tolist(), clean_up_tokenization_spaces=False)
    plain = [bool(text.strip()) and text.isascii() and text.isprintable() for text in texts]
    again = tokenizer(texts, add_special_tokens=False)["input_ids"]
    kept = [ok and back == [i] for ok, back, i in zip(plain, again, ids.tolist(), strict=True)]
    return ids[np.array(kept, dtype=bool)]


class SuffixedRequests:
    """Requests with one suffix at their end; UserError: the template changes their words, or no token can follow."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], usable: Int[np.ndarray, " usable"]
    ) -> None:
        self.tokenizer, self.prompts, self.usable = tokenizer, prompts, usable
        if not len(usable):
            raise UserError("the tokenizer has no token of printable ASCII that is kept when its text is read again")
        probe = decoded(tokenizer, usable[:1])
        self.heads: list[list[int]] = []  # the tokens before the suffix, by request
        self._around: list[tuple[str, str]] = []
        for prompt in prompts:
            whole = render(tokenizer, with_suffix(prompt, probe)).text
            ended = with_suffix(prompt, probe).text
            if (at := whole.rfind(ended)) < 0:
                raise UserError(f"the chat template changes the words of prompt {prompt.id!r}; no suffix can be placed")
            self._around.append((whole[: at + len(prompt.text)], whole[at + len(ended) :]))
            self.heads.append(self._encoded([self._around[-1][0]])[0])
        first = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        after = len(whole) - len(self._around[-1][1])
        spans = zip(first["input_ids"], first["offset_mapping"], strict=True)
        self.tail = [token for token, (start, _) in spans if start >= after]  # of the template, equal for all

    def survives(self, suffixes: Suffixes) -> Bool[np.ndarray, " suffixes"]:
        """Return which suffixes are the same tokens again when their text is typed after each request."""
        texts = [decoded(self.tokenizer, suffix) for suffix in suffixes]
        encoded = self._encoded([b + joint(b, text) + a for text in texts for b, a in self._around])
        wanted = [[*head, *suffix, *self.tail] for suffix in suffixes.tolist() for head in self.heads]
        same = [found == tokens for found, tokens in zip(encoded, wanted, strict=True)]
        return np.array(same, dtype=bool).reshape(len(suffixes), -1).min(axis=1)

    def random(self, n: int, n_tokens: int, rng: np.random.Generator) -> Suffixes:
        """Draw n suffixes that survive, token by token; UserError: no token fits after what was drawn."""
        suffixes = np.zeros((n, 0), dtype=int)
        for _ in range(n_tokens):
            longer, fits = np.zeros((n, suffixes.shape[1] + 1), dtype=int), np.zeros(n, dtype=bool)
            for _ in range(TRIES):
                left = np.flatnonzero(~fits)
                if not len(left):
                    break
                longer[left] = np.column_stack([suffixes[left], rng.choice(self.usable, len(left))])
                fits[left] = self.survives(longer[left])
            if not fits.all():
                raise UserError("no random suffix keeps its tokens after these requests; use another chat model")
            suffixes = longer
        return suffixes

    def rendered(self, suffix: Int[np.ndarray, " tokens"]) -> list[Rendered]:
        """Return the requests with a suffix as the template writes them."""
        return [render(self.tokenizer, with_suffix(prompt, decoded(self.tokenizer, suffix))) for prompt in self.prompts]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return encoded


def decoded(tokenizer: PreTrainedTokenizerBase, suffix: Int[np.ndarray, " tokens"]) -> str:
    """Return the text of a suffix, as it was tokenised."""
    return str(tokenizer.decode(suffix.tolist(), clean_up_tokenization_spaces=False))


def joint(before: str, suffix: str) -> str:
    """Return a suffix with a blank before it, unless there is one; no suffix stays none."""
    return suffix if not suffix or suffix[0] == " " or before[-1:].isspace() else f" {suffix}"


def with_suffix(prompt: Prompt, suffix: str) -> Prompt:
    """Return a prompt whose last turn ends with a suffix."""
    last = {**prompt.messages[-1], "content": prompt.text + joint(prompt.text, suffix)}
    return replace(prompt, messages=(*prompt.messages[:-1], last))
