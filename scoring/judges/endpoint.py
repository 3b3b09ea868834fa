"""The endpoint judge: asks a model behind an OpenAI-compatible endpoint with a rubric, concurrently and with a cache.

Completions are judged in order and streamed; the number in flight is bounded. A judgement is cached as soon as it is
read, so a run that is killed and restarted asks only for the rest; failed requests are asked again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path

from extract.keyed_file import KeyedFile, content_key
from scoring.judges import CompletionToJudge, Judgement, JudgeRecord
from scoring.judges.chat_endpoint import ChatEndpoint, Message, Reply, RequestFailedError
from scoring.judges.config import EndpointConfig
from scoring.judges.replies import UnreadableError, question, read_reply
from scoring.judges.visible_text import text_to_judge

READ_AHEAD = 4  # completions read ahead for each concurrent request
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
        row = self._file.get([key]).get(key)
        if row is None:
            return None
        action, evidence, fields = row
        return Judgement(action, evidence, json.loads(fields))

    def put(self, key: str, judgement: Judgement) -> None:
        fields = json.dumps(dict(judgement.fields))
        self._file.put({key: (judgement.action, judgement.evidence, fields)})

    def close(self) -> None:
        self._file.close()


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
        self._lock = threading.Lock()
        if cache is not None:
            Cache(cache).close()  # reports a wrong file early

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        """Yield the judgement of each completion in order, as soon as it and the earlier ones are ready.

        Raises:
            UserError: no request can succeed, or the cache cannot be written; cached judgements are kept.
        """
        waiting: deque[Future[Judgement]] = deque()
        kept = closing(Cache(self._cache)) if self._cache else nullcontext()
        with kept as cache, ThreadPoolExecutor(self.config.concurrency) as pool:
            try:
                for one in completions:
                    waiting.append(self._begin(one, cache, pool))
                    while waiting and (waiting[0].done() or len(waiting) > READ_AHEAD * self.config.concurrency):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

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

    def _begin(self, one: CompletionToJudge, cache: Cache | None, pool: Executor) -> Future[Judgement]:
        text = text_to_judge(one.completion, one.prompt)
        if isinstance(text, Judgement):
            return self._known("unspoken", text)
        asked, config = question(one, text, known_answer=self.config.known_answers), self.config
        key = content_key(
            self.rubric, config.model, config.temperature, config.seed, config.json_mode, config.extra_body, asked
        )
        if cache is not None and (known := cache.get(key)) is not None:
            return self._known("cached", known)
        future = pool.submit(self._ask, asked, key, cache)
        if not self._begun:  # the first request runs alone: it shows whether any can succeed and JSON mode works
            future.result()
            self._begun = True
        return future

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

    def _known(self, how: str, judgement: Judgement) -> Future[Judgement]:
        self._add(**{how: 1})
        future: Future[Judgement] = Future()
        future.set_result(judgement)
        return future

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
