"""Several sampled responses to each prompt, cached by content like greedy ones (response_cache.py)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.responses.completions import Completer
from experiments.responses.response_cache import CachedResponses
from experiments.responses.setting import PromptBatch
from extract.model.decoding import SampledResponse
from extract.progress import Advance, no_progress


@dataclass(frozen=True)
class Sampler:
    """Draws sampled responses; the i-th one to a prompt is the same whatever else is drawn."""

    completer: Completer
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0

    def sample(
        self, rows: Sequence[int], times: int, advance: Advance = no_progress
    ) -> list[tuple[SampledResponse, ...]]:
        """Return `times` responses to each of the given prompts, in the given order.

        Batches are of similar length, the longest first, and smaller if memory runs out; the responses to a prompt
        share its prefill.
        """
        completer, kept = self.completer, [self._cached(index) for index in range(times)]
        tokens = {row: completer.rendered[row].token_ids for row in rows}
        done: list[dict[int, SampledResponse]] = []
        for cached in kept:
            stored = cached.find(list(tokens.values())) if cached else [None] * len(tokens)
            done.append({row: _from_json(one) for row, one in zip(tokens, stored, strict=True) if one is not None})
        advance(sum(map(len, done)), remembered=True)
        missing = {row for row in tokens if any(row not in each for each in done)}
        waiting = sorted(missing, key=lambda row: (-len(tokens[row]), row))

        left = [[place for place, row in enumerate(waiting) if row not in each] for each in done]

        def take(i: int, drawn_for: list[int], drawn: list[SampledResponse]) -> None:
            if (cached := kept[i]) is not None:
                cached.store([tokens[row] for row in drawn_for], [_to_json(one) for one in drawn])
            done[i].update(zip(drawn_for, drawn, strict=True))
            advance(len(drawn_for))

        drawing = Drawing(self.seed, self.temperature, self.top_p, completer.max_new_tokens)
        completer.answer(drawing, waiting, left, take)
        return [tuple(each[row] for each in done) for row in rows]

    def _cached(self, index: int) -> CachedResponses | None:
        completer = self.completer
        if completer.cache is None or completer.model.processors:  # logits processors have no cache key
            return None
        drawn = ("sampled", self.seed, index, self.temperature, self.top_p)
        return completer.cache.for_edits(completer.model.edits, completer.max_new_tokens, drawn)


@dataclass(frozen=True)
class Drawing:
    """Sampled responses: the i-th to each prompt is drawn with a seed of its own."""

    seed: int
    temperature: float
    top_p: float
    most_tokens: int

    def respond(self, batch: PromptBatch, which: int, places: Sequence[int]) -> list[SampledResponse]:
        """Return the response with index `which` to some prompts of a batch."""
        seeds = [self._seed(which, batch.rendered[place].token_ids) for place in places]
        return batch.samples(places, self.most_tokens, seeds, self.temperature, self.top_p)

    def _seed(self, index: int, prompt: Sequence[int]) -> int:
        """Return the seed of one response, a hash of the run's seed, the response's index and the prompt's tokens."""
        named = json.dumps([self.seed, index, list(prompt)]).encode()
        return int.from_bytes(hashlib.sha256(named).digest()[:8], "big")


def _to_json(one: SampledResponse) -> list[object]:
    return [list(one.token_ids), list(one.log_probs), one.ended]


def _from_json(kept: Sequence[object]) -> SampledResponse:
    tokens, log_probs, ended = kept
    return SampledResponse(tuple(tokens), tuple(log_probs), bool(ended))  # type: ignore[arg-type]
