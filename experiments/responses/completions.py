"""Judged greedy completions of prompts, plainly or under edits or dials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Shaped

from experiments.responses.response_cache import CachedResponses, ResponseCache
from experiments.run.completion_file import Completion
from extract.backoff import TokenBudget
from extract.chat.render import Rendered
from extract.chat.thinking import reopened
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.progress import Advance, no_progress
from extract.prompts.prompt import Prompt
from scoring.judges import CompletionToJudge, Judge
from steering.controller import steering
from steering.dial import Dial
from steering.writer import ConstantGateWriter, held_edits


@dataclass(frozen=True)
class Completer:
    """Completes rendered prompts with a model and judges the completions."""

    model: ChatModel
    prompts: Sequence[Prompt]
    rendered: Sequence[Rendered]
    max_new_tokens: int
    batch_size: int
    judge: Judge
    cache: ResponseCache | None = None  # of this model's responses
    say: Callable[[str], None] = lambda line: None

    def complete(
        self,
        rows: Sequence[int],
        *,
        edits: Sequence[Edit] = (),
        dials: Sequence[Dial] = (),
        held: Sequence[ConstantGateWriter] = (),
        advance: Advance = no_progress,
    ) -> list[Completion]:
        """Complete the given prompts and return completions in the given order.

        Batches hold prompts of similar length and become smaller if memory runs out. Interventions act in this order:
        edits, gates held open or closed, dials. Cached responses are not generated again; new ones are cached as soon
        as their batch is done. Every response is judged on every call.
        """
        done: dict[int, Completion] = {}
        edits = [*edits, *held_edits(held)]
        cached = self._cached(edits, dials, [bias for one in held for bias in one.biases])
        known = {} if cached is None else self._known(cached, rows)

        def finish(responses: dict[int, list[int]], *, remembered: bool = False) -> None:
            for row, completion in zip(responses, self._judged(responses), strict=True):
                done[row] = completion
                advance(1, remembered=remembered)

        missing = sorted((row for row in rows if row not in known), key=lambda row: len(self.rendered[row].token_ids))

        def work(places: list[int]) -> None:
            index = [missing[place] for place in places]
            responses = self._responses(index, edits, dials, held)
            if cached is not None:
                cached.store([self.rendered[row].token_ids for row in index], responses)
            finish(dict(zip(index, responses, strict=True)))

        if known:
            finish(known, remembered=True)
        self.budget.run([1] * len(missing), work)
        return [done[row] for row in rows]

    def actions(self, rows: Sequence[int], *, edits: Sequence[Edit] = ()) -> Shaped[np.ndarray, " rows"]:
        """Return only the actions: object array of action names, None if unjudged."""
        return np.array([c.action for c in self.complete(rows, edits=edits)], dtype=object)

    @cached_property
    def budget(self) -> TokenBudget:
        """The batch size in prompts; a size that ran out of memory once is not tried again by later calls."""
        return TokenBudget(self.batch_size, self.say, unit="prompts")

    def _cached(self, edits: Sequence[Edit], dials: Sequence[Dial], biases: Sequence[str]) -> CachedResponses | None:
        """Return the cache of these responses; None under dials, which have no cache key."""
        if self.cache is None or dials or self.model.processors:
            return None
        return self.cache.for_edits([*self.model.edits, *edits], self.max_new_tokens, biases)

    def _known(self, cached: CachedResponses, rows: Sequence[int]) -> dict[int, list[int]]:
        found = cached.find([self.rendered[row].token_ids for row in rows])
        return {row: response for row, response in zip(rows, found, strict=True) if response is not None}

    def _responses(
        self, index: Sequence[int], edits: Sequence[Edit], dials: Sequence[Dial], held: Sequence[ConstantGateWriter]
    ) -> list[list[int]]:
        rendered = [self.rendered[i] for i in index]
        batch = self.model.batch(rendered)
        biases = [bias for one in held for bias in one.processors(batch.prompt_length)]
        with self.model.editing(edits, biases), steering(self.model, dials, batch, rendered):
            return self.model.generate(batch, self.max_new_tokens)

    def _judged(self, responses: Mapping[int, list[int]]) -> Iterator[Completion]:
        asked = [self.prompts[row] for row in responses]
        decoded = {row: self.model.decode(tokens) for row, tokens in responses.items()}
        texts = [reopened(self.rendered[row].text, text) for row, text in decoded.items()]
        to_judge = [
            CompletionToJudge(text, prompt.text, prompt.messages) for text, prompt in zip(texts, asked, strict=True)
        ]
        judged = zip(asked, texts, self.judge.judge_all(to_judge), responses.values(), strict=True)
        for prompt, text, verdict, tokens in judged:
            yield Completion(prompt.id, prompt.text, text, verdict.action, verdict.evidence, tuple(tokens))
