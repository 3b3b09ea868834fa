"""Judged greedy completions of prompts, plainly or under edits, held gates or dials; and sampled responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from typing import TypeVar
from weakref import WeakSet

import numpy as np
from jaxtyping import Int

from experiments.responses.batched_edits import RepeatedPrompts, Trial
from experiments.responses.response_cache import ResponseCache
from experiments.responses.setting import (
    Answering,
    Asked,
    Greedy,
    Pool,
    Response,
    SampledDraw,
    Setting,
    Thoughts,
    Way,
    answer,
)
from experiments.run.completion_file import Completion
from experiments.run.outcomes import Outcomes
from extract.backoff import TokenBudget
from extract.chat.render import Rendered
from extract.chat.thinking import answer_start, reopened, thinks
from extract.model.chat_model import ChatModel
from extract.model.continuation import way_of
from extract.model.decoding import SampledResponse
from extract.model.edit import Edit
from extract.model.kept_prompts import KeptPrompts
from extract.progress import Advance, no_progress
from extract.prompts.prompt import Prompt
from extract.prompts.sources import contrasted_action
from scoring.judges import CompletionJudge, CompletionToJudge
from scoring.judges.rules import RuleJudge
from steering.dial import Dial
from steering.writer import ConstantGateWriter

_TOLD: WeakSet[ChatModel] = WeakSet()  # models of which it was said that they are slow
Name = TypeVar("Name")
Read = TypeVar("Read")


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
    settled_within: int = 0  # an answer that the rules take for settled ends where at most so many tokens are left
    kept: KeptPrompts | None = None  # keys and values of prompts that were read before
    contrast: bool = False  # a decline is the one of its prompt's way, however it is worded

    def complete(
        self,
        rows: Sequence[int],
        *,
        edits: Sequence[Edit] = (),
        dials: Sequence[Dial] = (),
        held: Sequence[ConstantGateWriter] = (),
        thoughts: Thoughts | None = None,
        advance: Advance = no_progress,
    ) -> list[Completion]:
        """Complete the given prompts under one setting; see `complete_each`."""
        return self.complete_each(rows, [Setting(edits, held, dials, thoughts or {})], advance)[0]

    def complete_each(
        self, rows: Sequence[int], settings: Sequence[Setting], advance: Advance = no_progress
    ) -> list[list[Completion]]:
        """Complete the given prompts under each setting; return each setting's completions in the order of `rows`.

        Batches hold prompts of similar length, the longest first. The settings share the keys and values of a batch.
        Responses are cached as soon as they are there, and judged on every call.
        """
        return self.complete_some([rows] * len(settings), settings, advance)

    def complete_some(
        self, rows: Sequence[Sequence[int]], settings: Sequence[Setting], advance: Advance = no_progress
    ) -> list[list[Completion]]:
        """Complete prompts of its own under each setting; see `complete_each`."""
        done = self._respond([self._greedy(one) for one in settings], rows, self._judged, advance)
        return [[by_row[row] for row in own] for by_row, own in zip(done, rows, strict=True)]

    def plain_tokens(self, whole: Iterable[int], most: int, advance: Advance = no_progress) -> list[list[int]]:
        """Return plain responses to all prompts, cached but not judged: of some whole, of the others `most` tokens."""
        answered = sorted(whole)
        others = sorted({*range(len(self.prompts))} - {*answered})
        ways, rows = [self._greedy(Setting()), Greedy(Setting(), most)], [answered, others]
        by_way = self._respond(ways, rows, lambda _way, responses: responses.values(), advance)
        by_row = by_way[0] | by_way[1]
        return [by_row[row] for row in range(len(self.prompts))]

    def _greedy(self, setting: Setting) -> Greedy:
        settles = isinstance(self.judge, RuleJudge) and not (setting.dials or setting.held)
        return Greedy(setting, self.max_new_tokens, self.settled_within if settles else 0)

    def complete_trials(
        self, rows: Sequence[int], trials: Sequence[Trial], advance: Callable[[int], None] = lambda steps: None
    ) -> list[list[Completion]]:
        """Complete the given prompts under the edits of each of many trials, many in one pass; nothing is cached."""
        done: dict[int, list[Completion]] = {}
        repeated = RepeatedPrompts(self.model, [self.rendered[row] for row in rows], n_new=self.max_new_tokens)
        for batch in repeated.passes(trials, 1):
            responses = repeated.responses(batch, self.max_new_tokens)
            for i, trial in enumerate(batch.trials):
                own = responses[i * len(rows) : (i + 1) * len(rows)]
                done[trial] = self.judged(rows, own)
            advance(len(batch.trials) * len(rows))
        return [done[i] for i in range(len(trials))]

    def judged(self, rows: Sequence[int], responses: Sequence[Sequence[int]]) -> list[Completion]:
        """Judge responses to the given prompts that were made elsewhere, as token ids."""
        way = Greedy(Setting(), self.max_new_tokens)
        return list(self._judged(way, dict(zip(rows, map(list, responses), strict=True))))

    def outcomes(
        self, rows: Int[np.ndarray, " rows"], named: Mapping[Name, Sequence[Edit]], advance: Advance = no_progress
    ) -> dict[Name, Outcomes]:
        """Return the outcomes of the given prompts under each of some named edits."""
        done = self.complete_each(rows.tolist(), [Setting(edits) for edits in named.values()], advance)
        return {name: Outcomes.completed(rows, each, self.prompts) for name, each in zip(named, done, strict=True)}

    def sample(
        self,
        rows: Sequence[int],
        times: int,
        *,
        seed: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        advance: Advance = no_progress,
    ) -> list[tuple[SampledResponse, ...]]:
        """Return `times` sampled responses to each of the given prompts; batches and cache are as for greedy ones."""
        ways = [SampledDraw(index, seed, temperature, top_p, self.max_new_tokens) for index in range(times)]
        drawn = self._respond(
            ways, [rows] * times, lambda _way, responses: starmap(_sampled, responses.values()), advance
        )
        return [tuple(by_row[row] for by_row in drawn) for row in rows]

    @cached_property
    def budget(self) -> TokenBudget:
        """The batch size in prompts; a size that ran out of memory once is not tried again by later calls."""
        return TokenBudget(self.batch_size, self.say, unit="prompts")

    def _respond(
        self,
        ways: Sequence[Way],
        rows: Sequence[Sequence[int]],  # one list a way
        read: Callable[[Way, Mapping[int, Response]], Iterable[Read]],
        advance: Advance,
    ) -> list[dict[int, Read]]:
        """Return what is read of the responses to some prompts in each way, by row."""
        tokens = {row: self.rendered[row].token_ids for own in rows for row in own}
        cache = None if self.model.processors else self.cache  # logits processors have no cache key
        kept = [way.cached(cache, self.model) if cache else None for way in ways]
        done: list[dict[int, Read]] = [{} for _ in ways]

        def finish(which: int, responses: Mapping[int, Response], *, remembered: bool = False) -> None:
            for row, result in zip(responses, read(ways[which], responses), strict=True):
                done[which][row] = result
                advance(1, remembered=remembered)

        for which, (cached, own) in enumerate(zip(kept, rows, strict=True)):
            if cached is not None:
                stored = zip(own, cached.find([tokens[row] for row in own]), strict=True)
                if known := {row: response for row, response in stored if response is not None}:
                    finish(which, known, remembered=True)
        missing = [set(own) - by_row.keys() for own, by_row in zip(rows, done, strict=True)]
        waiting = sorted(set().union(*missing), key=lambda row: (-len(tokens[row]), row))

        def take(which: int, places: list[int], responses: list[Response]) -> None:
            answered = [waiting[place] for place in places]
            if (cached := kept[which]) is not None:
                cached.store([tokens[row] for row in answered], responses)
            finish(which, dict(zip(answered, responses, strict=True)))

        left = [[place for place, row in enumerate(waiting) if row in own] for own in missing]
        asked = Asked([self.rendered[row] for row in waiting], left, [self.prompts[row] for row in waiting])
        if self.pool is None or self.model.edits or self.model.processors:  # workers' models have no open edits
            answer(self.model, self.budget, ways, asked, take, self.kept)
            if way_of(self.model) == "from the start" and self.model not in _TOLD:
                _TOLD.add(self.model)
                name = self.model.architecture
                self.say(f"{name} does not go on from prompts that it has read; each pass reads them again")
            return done
        for i, taken in self.pool.map(Answering(ways), asked.parts(self.batch_size)):
            for which, places, responses in taken:
                take(which, [i * self.batch_size + place for place in places], responses)
        return done

    def _judged(self, way: Way, responses: Mapping[int, Response]) -> Iterator[Completion]:
        asked = [self.prompts[row] for row in responses]
        texts = [reopened(self.rendered[row].text, self.model.decode(tokens)) for row, tokens in responses.items()]
        to_judge = [
            CompletionToJudge(text, prompt.text, prompt.messages) for text, prompt in zip(texts, asked, strict=True)
        ]
        judged = zip(responses.items(), asked, texts, self.judge.judge_all(to_judge), strict=True)
        for (row, tokens), prompt, text, verdict in judged:
            action = contrasted_action(verdict.action, prompt) if self.contrast else verdict.action
            settled = isinstance(way, Greedy) and way.is_settled(self.model, prompt, self.rendered[row], tokens)
            thought = self._thought(row, tokens, text)
            yield Completion(prompt.id, prompt.text, text, action, verdict.evidence, tuple(tokens), thought, settled)

    def _thought(self, row: int, tokens: Sequence[int], text: str) -> int:
        if not thinks(text):
            return 0
        return answer_start(self.model.pieces(tokens), opened=bool(reopened(self.rendered[row].text, "")))


def _sampled(tokens: list[int], log_probs: list[float], ended: bool) -> SampledResponse:
    return SampledResponse(tuple(tokens), tuple(log_probs), bool(ended))
