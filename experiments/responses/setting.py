"""How prompts are answered: under which edits, held gates and dials, in batches, here or by workers.

A worker prepares a task once and does part after part. Parts are the batches that one process would make, so that the
numbers do not depend on who does them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Protocol, TypeVar

import torch

from experiments.responses.response_cache import CachedResponses, ResponseCache
from extract.backoff import TokenBudget
from extract.chat.render import Rendered
from extract.chat.thinking import reopened
from extract.model.chat_model import ChatModel
from extract.model.continuation import (
    SETTLED_EVERY,
    CachedPrompts,
    Settled,
    decode_cached,
    rows_of,
    try_cache_prompts,
    way_of,
)
from extract.model.decoding import SampledResponse, TokenSampler, cut_at_end
from extract.model.edit import Edit
from extract.model.kept_prompts import KeptPrompts
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from scoring.judges.rules import RuleJudge
from scoring.known_answer import states
from steering.controller import steering
from steering.dial import Dial
from steering.writer import ConstantGateWriter, held_edits

Part = TypeVar("Part")
PartIn = TypeVar("PartIn", contravariant=True)
Result = TypeVar("Result")
ResultOut = TypeVar("ResultOut", covariant=True)
Response = list[Any]  # as in JSON: token ids of a greedy response; token ids, log-probabilities, ended of a sampled one
Thoughts = Mapping[tuple[int, ...], tuple[int, ...]]  # by the prompt's tokens
Take = Callable[[int, list[int], list[Response]], None]  # which way, which places of the prompts, their responses


@dataclass(frozen=True)
class Setting:
    """Interventions on a model while it answers; they act in this order: edits, held gates, dials."""

    edits: Sequence[Edit] = ()
    held: Sequence[ConstantGateWriter] = ()  # gates held open or closed
    dials: Sequence[Dial] = ()
    # plain ones, if all of this acts from their end on; prompts without one are answered plainly
    thoughts: Thoughts = field(default_factory=dict)

    @property
    def placed(self) -> list[Edit]:
        return [*self.edits, *held_edits(self.held)]


SETTLED_FROM = 16  # tokens of an answer from which on it can be settled
_rules = cache(RuleJudge)


def is_settled(model: ChatModel, prompt: Prompt, rendered: Rendered, tokens: Sequence[int]) -> bool:
    """Return whether the rules take a response for settled, and it states the prompt's known answer if there is one."""
    if len(tokens) < SETTLED_FROM:
        return False
    text = reopened(rendered.text, model.decode(tokens))
    if not _rules().is_settled(text, prompt.text):
        return False
    return prompt.answer is None or states(" ".join(text.split()[:-1]), prompt.answer, prompt.text)  # of whole words


def _until(settled: Settled, row: int, tokens: list[int]) -> list[int]:
    """Return a whole response up to where `decode_cached` would have ended it."""
    ends = (n for n in range(SETTLED_EVERY, len(tokens), SETTLED_EVERY) if settled({row: tokens[:n]}))
    return tokens[: next(ends, len(tokens))]


class PromptBatch:
    """A batch of prompts; the keys and values before each prompt's last token are computed once for all settings."""

    def __init__(
        self,
        model: ChatModel,
        rendered: Sequence[Rendered],
        prompts: Sequence[Prompt] = (),
        kept: KeptPrompts | None = None,
    ) -> None:
        self._model, self.rendered, self._prompts, self._kept = model, rendered, prompts, kept

    def responses(
        self, setting: Setting, places: Sequence[int], max_new_tokens: int, settled_within: int = 0
    ) -> list[list[int]]:
        """Return the greedy response to each of some prompts of the batch under a setting, without the end token.

        A settled response ends where at most `settled_within` tokens are left.
        """
        if setting.thoughts:
            return self._after_thoughts(setting, places, max_new_tokens)
        settled = partial(self._settled, places, max_new_tokens - settled_within) if settled_within else None
        keeps = not setting.dials and all(edit.keeps_prompt for edit in setting.placed)
        cached = self._of(places) if keeps else None
        if cached is None:
            whole = self._from_the_start(setting, places, max_new_tokens)
            return [_until(settled, row, tokens) for row, tokens in enumerate(whole)] if settled else whole
        biases = [bias for one in setting.held for bias in one.processors(cached.batch.prompt_length)]
        with self._model.editing(setting.placed, biases):
            responses = decode_cached(self._model, cached, max_new_tokens, settled=settled)
        return [cut_at_end(response, self._model.eos_ids) for response in responses]

    def samples(
        self, places: Sequence[int], max_new_tokens: int, seeds: Sequence[int], temperature: float, top_p: float
    ) -> list[SampledResponse]:
        """Return one sampled response to each of some prompts of the batch, as `ChatModel.sample` does."""
        cached = self._of(places)
        if cached is None:
            batch = self._model.batch([self.rendered[place] for place in places])
            return self._model.sample(batch, max_new_tokens, seeds, temperature, top_p)
        sampler = TokenSampler(seeds, max_new_tokens, temperature, top_p)
        responses = decode_cached(self._model, cached, max_new_tokens, sampler.choose)
        return sampler.sampled(responses, self._model.eos_ids)

    def _settled(self, places: Sequence[int], least: int, responses: Mapping[int, Sequence[int]]) -> set[int]:
        long = {row: tokens for row, tokens in responses.items() if len(tokens) >= least}
        asked = {row: (self._prompts[places[row]], self.rendered[places[row]]) for row in long}
        return {row for row, tokens in long.items() if is_settled(self._model, *asked[row], tokens)}

    def _of(self, places: Sequence[int]) -> CachedPrompts | None:
        """Return some cached prompts of the batch; None if the model cannot go on from them."""
        if self._cached is None or len(places) == len(self.rendered):
            return self._cached
        return rows_of(self._cached, torch.tensor(places))

    @cached_property
    def _cached(self) -> CachedPrompts | None:
        return try_cache_prompts(self._model, self._model.batch(self.rendered), self._kept)

    def _after_thoughts(self, setting: Setting, places: Sequence[int], max_new_tokens: int) -> list[list[int]]:
        """Return each prompt's plain thought with the answer after it, and whole plain responses without a thought."""
        thoughts = {place: setting.thoughts.get(tuple(self.rendered[place].token_ids), ()) for place in places}
        said, plain = dict[int, list[int]](), [place for place, thought in thoughts.items() if not thought]
        for own, acting in ((plain, Setting()), ([p for p in places if thoughts[p]], replace(setting, thoughts={}))):
            if not own:
                continue
            rows = [self.rendered[place].thinking(thoughts[place]) for place in own]
            most = max_new_tokens - min(len(thoughts[place]) for place in own)
            answers = PromptBatch(self._model, rows).responses(acting, range(len(own)), most)
            said |= {p: [*thoughts[p], *a][:max_new_tokens] for p, a in zip(own, answers, strict=True)}
        return [said[place] for place in places]

    def _from_the_start(self, setting: Setting, places: Sequence[int], max_new_tokens: int) -> list[list[int]]:
        """Answer with a prefill of its own: where the prompts are changed or read, or cannot be continued."""
        rendered = [self.rendered[place] for place in places]
        batch = self._model.batch(rendered)
        biases = [bias for one in setting.held for bias in one.processors(batch.prompt_length)]
        with self._model.editing(setting.placed, biases), steering(self._model, setting.dials, batch, rendered):
            # a state that cannot be moved between rows may be wrong in padded ones, too (MiniMax, transformers 5.23)
            return self._model.generate(batch, max_new_tokens, use_cache=way_of(self._model) != "from the start")


class Task(Protocol[PartIn, ResultOut]):
    """What is done with each part; pickled where workers are other processes."""

    def prepare(self, loaded: Any) -> Callable[[PartIn], ResultOut]:
        """Return the function of a part; `loaded` is the worker's `LoadedRun`, which imports this module."""


class Pool(Protocol):
    """Runs the parts of a task."""

    reporter: Reporter  # to whom it tells what happens to its workers

    def map(self, task: Task[Part, Result], parts: Sequence[Part]) -> Iterator[tuple[int, Result]]:
        """Yield the place of each part and its result, as they come; UserError: a part failed, or no worker is left."""


@dataclass(frozen=True)
class Greedy:
    """The greedy response under a setting, without the end token."""

    setting: Setting
    most_tokens: int
    settled_within: int = 0  # a settled answer ends where at most so many tokens are left; 0: never

    def respond(self, batch: PromptBatch, places: Sequence[int]) -> list[Response]:
        """Return the responses to some prompts of a batch."""
        return batch.responses(self.setting, places, self.most_tokens, self.settled_within)

    def is_settled(self, model: ChatModel, prompt: Prompt, rendered: Rendered, tokens: Sequence[int]) -> bool:
        """Return whether a response ended because it was settled: it would have, at this length."""
        left = self.most_tokens - len(tokens)
        checked = 0 < left <= self.settled_within and len(tokens) % SETTLED_EVERY == 0
        return checked and is_settled(model, prompt, rendered, tokens)

    def cached(self, cache: ResponseCache, model: ChatModel) -> CachedResponses | None:
        """Return the cache of these responses; None under dials, which have no cache key."""
        setting, extra = self.setting, list[object](bias for one in self.setting.held for bias in one.biases)
        extra += ["settled", self.settled_within] if self.settled_within else []
        extra += ["from the thought's end on"] if setting.thoughts else []
        return None if setting.dials else cache.for_edits([*model.edits, *setting.placed], self.most_tokens, extra)


@dataclass(frozen=True)
class SampledDraw:
    """The sampled response with one index; that to a prompt is the same whatever else is drawn."""

    index: int
    seed: int
    temperature: float
    top_p: float
    most_tokens: int

    def respond(self, batch: PromptBatch, places: Sequence[int]) -> list[Response]:
        named = ([self.seed, self.index, list(batch.rendered[place].token_ids)] for place in places)
        hashes = (hashlib.sha256(json.dumps(each).encode()).digest() for each in named)
        seeds = [int.from_bytes(each[:8], "big") for each in hashes]
        drawn = batch.samples(places, self.most_tokens, seeds, self.temperature, self.top_p)
        return [[list(one.token_ids), list(one.log_probs), one.ended] for one in drawn]

    def cached(self, cache: ResponseCache, model: ChatModel) -> CachedResponses | None:
        key = ("sampled", self.seed, self.index, self.temperature, self.top_p)
        return cache.for_edits(model.edits, self.most_tokens, key)


Way = Greedy | SampledDraw  # in which prompts are answered


@dataclass(frozen=True)
class Asked:
    """Prompts, the longest first, and which of them are asked in each way."""

    rendered: Sequence[Rendered]
    places: Sequence[Sequence[int]]  # one list a way
    prompts: Sequence[Prompt] = ()  # of the rendered ones, where answers may be settled

    def parts(self, n: int) -> list[Asked]:
        """Divide the prompts into parts of n, in order."""
        starts = range(0, len(self.rendered), n)
        places = ([[i - start for i in own if start <= i < start + n] for own in self.places] for start in starts)
        return [
            Asked(self.rendered[start : start + n], own, self.prompts[start : start + n])
            for start, own in zip(starts, places, strict=True)
        ]


def answer(
    model: ChatModel,
    budget: TokenBudget,
    ways: Sequence[Way],
    asked: Asked,
    take: Take,
    kept: KeptPrompts | None = None,
) -> None:
    """Answer prompts in batches, which become smaller if memory runs out; `take` is called as responses come."""
    wanted = [set(each) for each in asked.places]

    def work(places: list[int]) -> None:
        prompts = [asked.prompts[place] for place in places] if asked.prompts else ()
        batch = PromptBatch(model, [asked.rendered[place] for place in places], prompts, kept)
        for which, left in enumerate(wanted):
            if own := [i for i, place in enumerate(places) if place in left]:
                responses, answered = ways[which].respond(batch, own), [places[i] for i in own]
                left.difference_update(answered)  # not again, if memory runs out in another way
                take(which, answered, responses)

    budget.run([1] * len(asked.rendered), work)


@dataclass(frozen=True)
class Answering:
    """The task of answering parts of `Asked`; its result is what `take` would be called with."""

    ways: Sequence[Way]

    def prepare(self, loaded: Any) -> Callable[[Asked], list[tuple[int, list[int], list[Response]]]]:
        model, say = loaded.model, loaded.reporter.say
        budget = TokenBudget(loaded.config.generate.batch_size, say, unit="prompts")

        def work(asked: Asked) -> list[tuple[int, list[int], list[Response]]]:
            taken = list[tuple[int, list[int], list[Response]]]()
            answer(model, budget, self.ways, asked, lambda *each: taken.append(each), loaded.kept)
            return taken

        return work
