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
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

from extract.keyed_file import KeyedFile, content_key
from scoring.actions import ACTIONS, Action
from scoring.case import Row
from scoring.fields import FIELDS, RIGHT
from scoring.judges import CompletionToJudge, Judgement, JudgeRecord
from scoring.judges.chat_endpoint import ChatEndpoint, Message, Reply, RequestFailedError, UnreadableError, concurrently
from scoring.judges.config import EndpointConfig
from scoring.judges.visible_text import text_to_judge, visible_text

READ_AHEAD = 4  # completions read ahead for each concurrent request
EVIDENCE_CHARS = 300
_CONTROL = re.compile(
    r"<|\[(?=/?[A-Z_]+\])"
)  # starts of <|im_end|>, </s>, [INST], which servers may read as control tokens
COUNTED = ("asked", "cached", "unspoken", "unreadable", "fields_out_of_range")


class EndpointRecord(JudgeRecord):
    """The judging model, its rubric and settings, and the numbers of completions and requests by kind."""

    model: str
    rubric: str  # SHA-256
    temperature: float | None
    seed: int | None
    json_mode: bool  # still in use after the last reply
    asked: int
    cached: int
    unspoken: int
    unreadable: int
    fields_out_of_range: int
    retried: int
    failed: dict[str, int]  # by kind of failure
    input_tokens: int
    output_tokens: int
    cost: float | None  # in the currency of the configured prices; null without them, or where tokens were not counted


class EndpointJudge:
    """Judge completions by asking a model, one request for each completion.

    Raises:
        UserError: the rubric, the openai package, the key or the cache is missing or unusable.
    """

    def __init__(self, config: EndpointConfig, cache: Path | None = None) -> None:
        self.config = config
        self.rubric = config.rubric_text()
        self._endpoint = ChatEndpoint(config)
        self._cache = cache
        self._begun = False
        self._counts: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._lock, self._first = threading.Lock(), threading.Lock()
        if cache is not None:
            Cache(cache).close()  # reports a wrong file early

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        """Yield the judgement of each completion in order, as soon as it and the earlier ones are ready.

        Raises:
            UserError: no request can succeed, or the cache cannot be written; cached judgements are kept.
        """
        kept = closing(Cache(self._cache)) if self._cache else nullcontext()
        with kept as cache:
            yield from concurrently(
                lambda one: self._judge(one, cache), completions, self.config.concurrency, READ_AHEAD
            )

    def record(self) -> EndpointRecord:
        """Return the model, the rubric and settings, and the counts, tokens and cost."""
        counts, config = self._counts, self.config
        return EndpointRecord(
            judge="endpoint",
            model=config.model,
            rubric=hashlib.sha256(self.rubric.encode()).hexdigest(),
            temperature=config.temperature,
            seed=config.seed,
            json_mode=self._endpoint.json_mode,
            **{name: counts[name] for name in COUNTED},
            retried=max(0, self._endpoint.requests - counts["asked"]),
            failed=dict(sorted(self._failed.items())),
            input_tokens=counts["input_tokens"],
            output_tokens=counts["output_tokens"],
            cost=self._cost(),
        )

    def _judge(self, one: CompletionToJudge, cache: Cache | None) -> Judgement:
        text = text_to_judge(one.completion, one.prompt)
        if isinstance(text, Judgement):
            self._add(unspoken=1)
            return text
        asked, config = question(one, text, known_answer=self.config.known_answers), self.config
        key = content_key(
            self.rubric, config.model, config.temperature, config.seed, config.json_mode, config.extra_body, asked
        )
        if cache is not None and (known := cache.get(key)) is not None:
            self._add(cached=1)
            return known
        if not self._begun:
            with self._first:  # the first request runs alone: it shows whether any can succeed and JSON mode works
                if not self._begun:
                    judgement = self._ask(asked, key, cache)
                    self._begun = True
                    return judgement
        return self._ask(asked, key, cache)

    def _ask(self, asked: str, key: str, cache: Cache | None) -> Judgement:
        """Ask until the reply can be read; cache the judgement."""
        self._add(asked=1)
        plain: list[Message] = [{"role": "system", "content": self.rubric}, {"role": "user", "content": asked}]
        messages, reason = plain, ""
        for _ in range(self.config.retries + 1):
            reply = None
            try:
                reply = self._endpoint.reply(messages)
                self._add_tokens(reply)
                judgement, out_of_range = read_reply(reply.text)
            except RequestFailedError as error:
                self._add_failure(error.kind)
                return Judgement(None, f"the endpoint failed ({error.kind}): {error}")
            except UnreadableError as error:
                reason = f"{error}; it was cut off at max_tokens" if reply and reply.cut_off else str(error)
                messages = _asked_again(plain, reply, reason)
            else:
                self._add(fields_out_of_range=out_of_range)
                if cache is not None:
                    cache.put(key, judgement)
                return judgement
        self._add(unreadable=1)
        return Judgement(None, f"the judge's reply could not be read: {reason}")

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def _add_failure(self, kind: str) -> None:
        with self._lock:
            self._failed[kind] += 1

    def _add_tokens(self, reply: Reply) -> None:
        unmetered = int(reply.input_tokens is None or reply.output_tokens is None)
        self._add(input_tokens=reply.input_tokens or 0, output_tokens=reply.output_tokens or 0, unmetered=unmetered)

    def _cost(self) -> float | None:
        prices = self.config.price_per_million_input, self.config.price_per_million_output
        if prices[0] is None or prices[1] is None or self._counts["unmetered"]:
            return None
        return (prices[0] * self._counts["input_tokens"] + prices[1] * self._counts["output_tokens"]) / 1e6


def _asked_again(plain: list[Message], reply: Reply | None, reason: str) -> list[Message]:
    """Add the reply and its error to the messages; at temperature 0 the same messages give the same reply."""
    if reply is None or not reply.text.strip():
        return plain
    earlier = {"role": "assistant", "content": reply.text[:2000]}
    remark = f"This could not be read: {reason}. Reply with the one JSON object that was asked for and nothing else."
    return [*plain, earlier, {"role": "user", "content": remark}]


class Cache:
    """A thread-safe mapping from keys to judgements in a file; each judgement is on the disk before the next request.

    Raises:
        UserError: the file cannot be opened or written, or is not a cache of judgements.
    """

    def __init__(self, path: Path) -> None:
        remedy = "choose another file, or delete it to ask everything again"
        columns = ("action", "evidence", "fields")
        self._file = KeyedFile(path, "judgements", columns, purpose="the cache of judgements", remedy=remedy)

    def get(self, key: str) -> Judgement | None:
        cached = self._file.get([key])
        if key not in cached:
            return None
        action, evidence, fields = cached[key]
        return Judgement(action, evidence, json.loads(fields))

    def put(self, key: str, judgement: Judgement) -> None:
        fields = json.dumps(dict(judgement.fields))
        self._file.put({key: (judgement.action, judgement.evidence, fields)})

    def close(self) -> None:
        self._file.close()


def question(to_judge: CompletionToJudge, completion: str, *, known_answer: bool = False) -> str:
    """Return the conversation and the completion as one JSON object that no text inside it can break.

    JSON escapes quotes and line breaks; characters that a chat template may read as control tokens are escaped too.
    """
    prompt = [{"role": "user", "content": to_judge.prompt}] if to_judge.prompt is not None else []
    conversation = [dict(message) for message in to_judge.messages] or prompt
    known = {"known_answer": to_judge.answer} if known_answer and to_judge.answer else {}
    text = json.dumps({"conversation": conversation, "completion": completion} | known, ensure_ascii=False)
    text = _CONTROL.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)  # the same JSON, without control tokens in it
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent


def read_reply(text: str) -> tuple[Judgement, int]:
    """Return the judgement in a reply, ignoring text around its JSON, and the number of fields outside [0, 1].

    Raises:
        UnreadableError: there is no JSON object with a known action, or there are several that differ.
    """
    replies = [value for value in _objects(visible_text(text) or "") if "action" in value]
    if not replies:
        raise UnreadableError(f"no JSON object with an action in {_short(text)!r}")
    reply = replies[-1]
    if any(value["action"] != reply["action"] for value in replies):
        raise UnreadableError(f"several actions in {_short(text)!r}")
    evidence = " ".join(str(reply.get("evidence") or "no evidence was given").split())[:EVIDENCE_CHARS]
    fields = {name: reply[name] for name in FIELDS if reply.get(name) is not None}
    scored: dict[str, float] = {name: score for name, value in fields.items() if (score := _score(value)) is not None}
    if isinstance(right := reply.get(RIGHT), bool):
        scored[RIGHT] = float(right)
    action = _action(reply["action"])
    reason = evidence if action else f"the judge could not tell: {evidence}"
    return Judgement(action, reason, scored), len(fields) - len(scored)


def _objects(text: str) -> Iterator[Row]:
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
    if given is None:  # the judge returned null: it cannot decide
        return None
    named = "_".join(given.lower().replace("-", " ").split()) if isinstance(given, str) else given
    for action in ACTIONS:
        if action == named:
            return action
    raise UnreadableError(f"no such action: {_short(str(given))!r}")


def _score(value: object) -> float | None:
    """Return a number from 0 to 1; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:  # also excludes NaN
        return None
    return float(value)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"
