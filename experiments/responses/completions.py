"""Judged greedy completions of prompts, plainly or under edits, held gates or dials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Shaped

from experiments.responses.answering import Answering, Answers, Asked, Greedy, Response, Responses, Take, answer
from experiments.responses.pool import Pool
from experiments.responses.response_cache import CachedResponses, ResponseCache
from experiments.responses.setting import Setting
from experiments.run.completion_file import Completion
from extract.backoff import TokenBudget
from extract.chat.render import Rendered
from extract.chat.thinking import reopened
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.progress import Advance, no_progress
from extract.prompts.prompt import Prompt
from extract.prompts.sources import contrasted_action
from scoring.judges import CompletionJudge, CompletionToJudge
from steering.dial import Dial
from steering.writer import ConstantGateWriter


@dataclass
class _Column:
    """The completions under one setting, as they come."""

    setting: Setting
    cached: CachedResponses | None
    done: dict[int, Completion] = field(default_factory=dict)


@dataclass(frozen=True)
class Completer:
    """Completes rendered prompts with a model and judges the completions."""

    model: ChatModel
    prompts: Sequence[Prompt]
    rendered: Sequence[Rendered]
    max_new_tokens: int
    batch_size: int
    judge: CompletionJudge
    cache: ResponseCache | None = None  # of this model's responses
    say: Callable[[str], None] = lambda line: None
    pool: Pool | None = None  # whose workers answer; None: this model
    contrast: bool = False  # a decline is the one of its prompt's way, however it is worded

    def complete(
        self,
        rows: Sequence[int],
        *,
        edits: Sequence[Edit] = (),
        dials: Sequence[Dial] = (),
        held: Sequence[ConstantGateWriter] = (),
        advance: Advance = no_progress,
    ) -> list[Completion]:
        """Complete the given prompts under one setting; see `complete_each`."""
        return self.complete_each(rows, [Setting(edits, held, dials)], advance)[0]

    def complete_each(
        self, rows: Sequence[int], settings: Sequence[Setting], advance: Advance = no_progress
    ) -> list[list[Completion]]:
        """Complete the given prompts under each setting; return each setting's completions in the order of `rows`.

        Batches hold prompts of similar length, the longest first, and become smaller if memory runs out. The settings
        share the keys and values of a batch. Cached responses are not generated again; new ones are cached as soon as
        they are there. Every response is judged on every call.
        """
        columns = [
            _Column(setting, setting.cached(self.cache, self.model, self.max_new_tokens)) for setting in settings
        ]
        for column in columns:
            if column.cached is not None and (known := self._known(column.cached, rows)):
                self._finish(column, known, advance, remembered=True)
        missing = {row for column in columns for row in rows if row not in column.done}
        waiting = sorted(missing, key=lambda row: (-len(self.rendered[row].token_ids), row))

        left = [[place for place, row in enumerate(waiting) if row not in column.done] for column in columns]

        def take(which: int, answered: list[int], responses: Responses) -> None:
            column = columns[which]
            if column.cached is not None:
                column.cached.store([self.rendered[row].token_ids for row in answered], responses)
            self._finish(column, dict(zip(answered, responses, strict=True)), advance)

        self.answer(Greedy(settings, self.max_new_tokens), waiting, left, take)
        return [[column.done[row] for row in rows] for column in columns]

    def answer(
        self, how: Answers[Response], rows: Sequence[int], places: Sequence[Sequence[int]], take: Take[Response]
    ) -> None:
        """Answer prompts here, or by the pool's workers; `take` gets the rows that were answered.

        Args:
            rows: the prompts, the longest first.
            places: for each setting, the places in `rows` of those that are asked.
        """
        asked = Asked([self.rendered[row] for row in rows], places)

        def placed(which: int, at: list[int], responses: list[Response]) -> None:
            take(which, [rows[place] for place in at], responses)

        if self.pool is None or self.model.edits or self.model.processors:  # workers' models have no open edits
            answer(self.model, self.budget, how, asked, placed)
            return
        parts = asked.parts(self.batch_size)
        for i, taken in self.pool.map(Answering(how), parts):
            for which, at, responses in taken:
                placed(which, [i * self.batch_size + place for place in at], responses)

    def actions(self, rows: Sequence[int], *, edits: Sequence[Edit] = ()) -> Shaped[np.ndarray, " rows"]:
        """Return only the actions: object array of action names, None if unjudged."""
        return np.array([c.action for c in self.complete(rows, edits=edits)], dtype=object)

    @cached_property
    def budget(self) -> TokenBudget:
        """The batch size in prompts; a size that ran out of memory once is not tried again by later calls."""
        return TokenBudget(self.batch_size, self.say, unit="prompts")

    def _known(self, cached: CachedResponses, rows: Sequence[int]) -> dict[int, list[int]]:
        responses = cached.find([self.rendered[row].token_ids for row in rows])
        return {row: response for row, response in zip(rows, responses, strict=True) if response is not None}

    def _finish(
        self, column: _Column, responses: Mapping[int, list[int]], advance: Advance, *, remembered: bool = False
    ) -> None:
        for row, completion in zip(responses, self._judged(responses), strict=True):
            column.done[row] = completion
            advance(1, remembered=remembered)

    def _judged(self, responses: Mapping[int, list[int]]) -> Iterator[Completion]:
        asked = [self.prompts[row] for row in responses]
        decoded = {row: self.model.decode(tokens) for row, tokens in responses.items()}
        texts = [reopened(self.rendered[row].text, text) for row, text in decoded.items()]
        to_judge = [
            CompletionToJudge(text, prompt.text, prompt.messages) for text, prompt in zip(texts, asked, strict=True)
        ]
        judged = zip(asked, texts, self.judge.judge_all(to_judge), responses.values(), strict=True)
        for prompt, text, verdict, tokens in judged:
            action = contrasted_action(verdict.action, prompt) if self.contrast else verdict.action
            yield Completion(prompt.id, prompt.text, text, action, verdict.evidence, tuple(tokens))
