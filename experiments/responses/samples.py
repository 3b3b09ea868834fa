"""Several sampled responses to each prompt, cached by content like greedy ones (response_cache.py)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.responses.completions import Completer
from experiments.responses.response_cache import CachedResponses
from extract.model.sampling import SampledResponse
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
        """Return `times` responses to each of the given prompts, in the given order."""
        drawn = [self._once(rows, index, advance) for index in range(times)]
        return [tuple(once[row] for once in drawn) for row in rows]

    def _once(self, rows: Sequence[int], index: int, advance: Advance) -> dict[int, SampledResponse]:
        """Draw the index-th response to each prompt; batches are of similar length, smaller if memory runs out."""
        completer, cached = self.completer, self._cached(index)
        tokens = {row: completer.rendered[row].token_ids for row in rows}
        found = cached.find(list(tokens.values())) if cached else [None] * len(tokens)
        done = {row: _from_json(kept) for row, kept in zip(tokens, found, strict=True) if kept is not None}
        advance(len(done), remembered=True)
        missing = sorted((row for row in tokens if row not in done), key=lambda row: len(tokens[row]))

        def work(places: list[int]) -> None:
            batch = [missing[place] for place in places]
            seeds = [self._seed(index, tokens[row]) for row in batch]
            drawn = completer.model.sample(
                completer.model.batch([completer.rendered[row] for row in batch]),
                completer.max_new_tokens, seeds, self.temperature, self.top_p,
            )  # fmt: skip
            if cached is not None:
                cached.store([tokens[row] for row in batch], [_to_json(one) for one in drawn])
            done.update(zip(batch, drawn, strict=True))
            advance(len(batch))

        completer.budget.run([1] * len(missing), work)
        return done

    def _cached(self, index: int) -> CachedResponses | None:
        completer = self.completer
        if completer.cache is None or completer.model.processors:  # logits processors have no cache key
            return None
        drawn = ("sampled", self.seed, index, self.temperature, self.top_p)
        return completer.cache.for_edits(completer.model.edits, completer.max_new_tokens, drawn)

    def _seed(self, index: int, prompt: Sequence[int]) -> int:
        """Return the seed of one response, a hash of the run's seed, the response's index and the prompt's tokens."""
        named = json.dumps([self.seed, index, list(prompt)]).encode()
        return int.from_bytes(hashlib.sha256(named).digest()[:8], "big")


def _to_json(one: SampledResponse) -> list[object]:
    return [list(one.token_ids), list(one.log_probs), one.ended]


def _from_json(kept: Sequence[object]) -> SampledResponse:
    tokens, log_probs, ended = kept
    return SampledResponse(tuple(tokens), tuple(log_probs), bool(ended))  # type: ignore[arg-type]
