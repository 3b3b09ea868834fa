"""The endpoint judge: asks a model behind an OpenAI-compatible endpoint with a rubric, concurrently and with a cache.

Completions are judged in order and streamed; the number in flight is bounded. A judgement is cached as soon as it is
read, so a run that is killed and restarted asks only for the rest; failed requests are asked again.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from extract.errors import shortened
from extract.keyed_file import KeyedFile, content_key
from scoring.actions import ACTIONS, Action
from scoring.case import Row
from scoring.fields import FIELDS, RIGHT
from scoring.judges import CompletionToJudge, Judgement, JudgeRecord
from scoring.judges.chat_endpoint import (
    ChatEndpoint,
    Question,
    Reply,
    RequestFailedError,
    UnreadableError,
    concurrently,
)
from scoring.judges.config import Connection, EndpointConfig
from scoring.judges.visible_text import text_to_judge, visible_text

T = TypeVar("T")
READ_AHEAD = 4  # completions read ahead for each concurrent request
EVIDENCE_CHARS = 300
# starts of <|im_end|>, </s>, [INST], which servers may read as control tokens
_CONTROL = re.compile(r"<|\[(?=/?[A-Z_]+\])")
JSON_AGAIN = "Reply with the one JSON object that was asked for and nothing else."
COUNTED = ("asked", "cached", "unspoken", "without_prompt", "unreadable", "fields_out_of_range")


class Form(Protocol):
    """What a judge is asked about a completion, and how its reply is read."""

    kind: str  # of the judge, in its record
    instructions: str  # the same in each question
    again: str | None  # what is asked after an unreadable reply; None: the same question once more
    reading: tuple[object, ...]  # what else a judgement depends on: how a reply is read

    def question(self, one: CompletionToJudge, text: str) -> Question | None:
        """Return the question about a completion, whose visible text is `text`; None without the prompt it needs."""
        ...

    def read(self, reply: str) -> tuple[Judgement, int]:
        """Return the judgement, and the number of fields that are out of range; UnreadableError: there is none."""
        ...


class RubricForm:
    """The form of the endpoint judge: a rubric, and a JSON object with an action as the reply."""

    kind = "endpoint"
    again: str | None = JSON_AGAIN
    reading: tuple[object, ...] = ()

    def __init__(self, config: EndpointConfig) -> None:
        self.instructions, self.known_answer = config.rubric_text(), config.known_answers

    def question(self, one: CompletionToJudge, text: str) -> Question:
        return rubric_question(self.instructions, question(one, text, known_answer=self.known_answer))

    def read(self, reply: str) -> tuple[Judgement, int]:
        return read_reply(reply)


class EndpointJudge:
    """Judge completions by asking a model, one request for each completion; by default for their actions."""

    def __init__(self, config: Connection, cache: Path | None = None, form: Form | None = None) -> None:
        if form is None:
            assert isinstance(config, EndpointConfig)
            form = RubricForm(config)
        self.config, self.form = config, form
        self._endpoint = ChatEndpoint(config)
        self._counts, self._failed, self._lock = Counter[str](), Counter[str](), threading.Lock()
        self._first, self._begun = threading.Lock(), False
        remedy = "choose another file, or delete it to ask everything again"
        open_file = partial(KeyedFile, purpose="the cache of judgements", remedy=remedy)
        self._open = None if cache is None else partial(open_file, cache, "judgements", ("judgement",))
        if self._open is not None:
            self._open().close()  # reports a wrong file early

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        """Yield the judgement of each completion in order, as soon as it and the earlier ones are ready."""
        return (judgement for _, judgement in self.judge_some(completions, lambda one: one) if judgement)

    def judge_some(
        self, items: Iterable[T], completion: Callable[[T], CompletionToJudge | None]
    ) -> Iterator[tuple[T, Judgement | None]]:
        """Yield each item, in order, with the judgement of its completion; None where it has none to judge."""

        def judge(item: T) -> tuple[T, Judgement | None]:
            one = completion(item)
            return item, None if one is None else self._judge(cache, one)

        with closing(self._open()) if self._open else nullcontext() as cache:
            yield from concurrently(judge, items, self.config.concurrency, READ_AHEAD)

    def record(self) -> JudgeRecord:
        """Return the model, the rubric, settings and counts; the cost is null without prices or counted tokens."""
        counts, config = self._counts, self.config
        prices = config.price_per_million_input, config.price_per_million_output
        cost = None
        if prices[0] is not None and prices[1] is not None and not counts["unmetered"]:
            cost = (prices[0] * counts["input_tokens"] + prices[1] * counts["output_tokens"]) / 1e6
        return JudgeRecord(
            judge=self.form.kind,
            model=config.model,
            rubric=hashlib.sha256(self.form.instructions.encode()).hexdigest(),
            temperature=config.temperature,
            seed=config.seed,
            json_mode=self._endpoint.json_mode,  # whether still in use after the last reply
            **{name: counts[name] for name in COUNTED},
            retried=max(0, self._endpoint.requests - counts["asked"]),
            failed=dict(sorted(self._failed.items())),
            **{name: counts[name] for name in ("input_tokens", "output_tokens")},
            cost=cost,
        )

    def _judge(self, cache: KeyedFile | None, one: CompletionToJudge) -> Judgement:
        text = text_to_judge(one.completion, one.prompt)
        if isinstance(text, Judgement):
            self._add(unspoken=1)
            return text
        asked, config = self.form.question(one, text), self.config
        if asked is None:
            self._add(without_prompt=1)
            return Judgement(None, "its prompt is not known")
        how = (config.model, config.temperature, config.seed, config.json_mode, config.extra_body)
        key = content_key(self.form.kind, self.form.reading, how, asked)
        if cache is not None and (kept := cache.get([key])):
            self._add(cached=1)
            return Judgement(**json.loads(kept[key][0]))
        answer = None
        if not self._begun:
            with self._first:  # the first request runs alone: it shows whether any can succeed and JSON mode works
                if not self._begun:
                    answer, self._begun = self._ask(asked), True
        judgement, readable = answer or self._ask(asked)
        if readable and cache is not None:
            cache.put({key: (json.dumps(vars(judgement)),)})
        return judgement

    def _ask(self, plain: Question) -> tuple[Judgement, bool]:
        """Ask until the reply can be read; return the judgement, and whether it could."""
        self._add(asked=1)
        asked, reason = plain, ""
        for _ in range(self.config.retries + 1):
            reply = None
            try:
                reply = self._endpoint.reply(asked)
                unmetered = int(reply.input_tokens is None or reply.output_tokens is None)
                tokens = {"input_tokens": reply.input_tokens or 0, "output_tokens": reply.output_tokens or 0}
                self._add(**tokens, unmetered=unmetered)
                judgement, out_of_range = self.form.read(reply.text)
            except RequestFailedError as error:
                with self._lock:
                    self._failed[error.kind] += 1
                return Judgement(None, f"the endpoint failed ({error.kind}): {error}"), False
            except UnreadableError as error:
                reason = f"{error}; it was cut off at max_tokens" if reply and reply.cut_off else str(error)
                asked = _asked_again(
                    plain, reply, self.form.again and f"This could not be read: {reason}. {self.form.again}"
                )
            else:
                self._add(fields_out_of_range=out_of_range)
                return judgement, True
        self._add(unreadable=1)
        return Judgement(None, f"the judge's reply could not be read: {reason}"), False

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)


def _asked_again(plain: Question, reply: Reply | None, remark: str | None) -> Question:
    """Add the reply and a remark to the messages; at temperature 0 the same messages give the same reply."""
    if reply is None or remark is None or isinstance(plain, str) or not reply.text.strip():
        return plain
    earlier = {"role": "assistant", "content": reply.text[:2000]}
    return [*plain, earlier, {"role": "user", "content": remark}]


def rubric_question(rubric: str, asked: str) -> Question:
    """Return a rubric, and what is asked by it, as messages."""
    return [{"role": "system", "content": rubric}, {"role": "user", "content": asked}]


def question(to_judge: CompletionToJudge, completion: str, *, known_answer: bool = False) -> str:
    """Return the conversation and the completion as one JSON object that no text inside it can break.

    JSON escapes quotes and line breaks; characters that a chat template may read as control tokens are escaped too.
    """
    prompt = [{"role": "user", "content": to_judge.prompt}] if to_judge.prompt is not None else []
    conversation = [dict(message) for message in to_judge.messages] or prompt
    known = {"known_answer": to_judge.answer} if known_answer and to_judge.answer else {}
    text = json.dumps({"conversation": conversation, "completion": completion} | known, ensure_ascii=False)
    text = _CONTROL.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)  # the same JSON, without control tokens in it
    return sendable(text)


def without_control(text: str) -> str:
    """Return a text whose control tokens are no more read as such: a space after what begins one."""
    return sendable(_CONTROL.sub(lambda mark: f"{mark[0]} ", text))


def sendable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def read_reply(text: str) -> tuple[Judgement, int]:
    """Return the judgement in a reply, ignoring text around its JSON, and the number of fields outside [0, 1].

    Raises:
        UnreadableError: there is no JSON object with a known action, or there are several that differ.
    """
    replies = [value for value in json_objects(visible_text(text) or "") if "action" in value]
    if not replies:
        raise UnreadableError(f"no JSON object with an action in {_short(text)!r}")
    reply = replies[-1]
    if any(value["action"] != reply["action"] for value in replies):
        raise UnreadableError(f"several actions in {_short(text)!r}")
    evidence = " ".join(str(reply.get("evidence") or "no evidence was given").split())[:EVIDENCE_CHARS]
    fields = {name: reply[name] for name in FIELDS if reply.get(name) is not None}
    numbers = {name: v for name, v in fields.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    scored: dict[str, float] = {name: float(v) for name, v in numbers.items() if 0 <= v <= 1}  # NaN is outside
    if isinstance(right := reply.get(RIGHT), bool):
        scored[RIGHT] = float(right)
    action = _action(reply["action"])
    reason = evidence if action else f"the judge could not tell: {evidence}"
    return Judgement(action, reason, scored), len(fields) - len(scored)


def json_objects(text: str) -> Iterator[Row]:
    """Yield the JSON objects in a text, in order."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def _action(given: object) -> Action | None:
    named = "_".join(given.lower().replace("-", " ").split()) if isinstance(given, str) else given
    if named is None or named in ACTIONS:  # null: the judge cannot decide
        return named
    raise UnreadableError(f"no such action: {_short(str(given))!r}")


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), 80)
