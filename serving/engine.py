"""The engine: one thread decodes waiting choices in batches, each row with its own thresholds.

A row that ends early emits its end at once; a batch ends when all rows have ended. Rows do not join a running batch:
dials write at positions counted from the prompt's end, which must be the same step in all rows of a batch.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from threading import Condition, Thread

import torch

from extract.backoff import empty_cache, is_out_of_memory
from extract.model.chat_model import ChatModel
from serving.choice import Choice, read_tokens
from steering.controller import steering
from steering.dial import Dial

GATHER_S = 0.01  # an idle engine waits this long to gather a batch
LOG = logging.getLogger("refusal.serve")


class QueueFullError(Exception):
    """The queue is full."""


class Engine:
    """Decodes choices in order of arrival; after an out-of-memory error, later batches hold fewer tokens."""

    reads_tokens = True

    def __init__(self, model: ChatModel, dials: Sequence[Dial], max_batch: int, max_queue: int) -> None:
        self.model = model
        self.dials: list[Dial] = list(dials)
        self.max_queue: int = max_queue
        self._max_batch, self._max_tokens = max_batch, math.inf
        self._waiting: deque[Choice] = deque()
        self._decoding: list[Choice] = []
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._work, name="decoding", daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def decoding(self) -> int:
        return sum(not choice.over for choice in self._decoding)

    def start(self) -> None:
        self._thread.start()

    def submit(self, choices: Sequence[Choice]) -> None:
        """Add choices to the queue, all or none; QueueFullError if they do not fit."""
        with self._changed:
            if self._closing or len(self._waiting) + len(choices) > self.max_queue:
                raise QueueFullError
            self._waiting.extend(choices)
            self._changed.notify()

    def withdraw(self, choices: Sequence[Choice]) -> None:
        """Abandon choices whose client has left; waiting ones free their places in the queue at once."""
        with self._changed:
            for choice in choices:
                choice.abandon()
                with suppress(ValueError):
                    self._waiting.remove(choice)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
            for choice in self._waiting:
                choice.fail("the server is stopping")
            self._waiting.clear()
        self._thread.join()

    def _work(self) -> None:
        while self._wait_for_work():
            self._work_on_next_batch()  # a call of its own: between batches no variable here keeps a choice alive

    def _work_on_next_batch(self) -> None:
        with self._changed:
            self._decoding = self._next_batch()
        try:
            self._decode_within_memory(self._decoding)
            for choice in self._decoding:
                choice.fail("the server is stopping")  # the others have ended already
        except Exception:  # any error: the server goes on, and the choices fail
            LOG.exception("decoding failed")
            for choice in self._decoding:
                choice.fail("decoding failed; see the server's log", transient=False)
        self._decoding = []

    def _wait_for_work(self) -> bool:
        """Wait until a choice is in the queue; False: the server is stopping."""
        with self._changed:
            idle = not self._waiting
            self._changed.wait_for(lambda: self._waiting or self._closing)
        if idle and not self._closing:
            time.sleep(GATHER_S)
        return not self._closing

    def _next_batch(self) -> list[Choice]:
        """Return the next batch: it fits into memory, and into the context even at its longest prompt and answer."""
        taken: list[Choice] = []
        prompt = steps = 0
        context = self.model.context or math.inf
        while self._waiting and len(taken) < self._max_batch:
            settings = self._waiting[0].settings
            prompt = max(prompt, len(self._waiting[0].row.token_ids))
            steps = max(steps, settings.max_new_tokens)
            if taken and (prompt + steps > context or (len(taken) + 1) * (prompt + steps) > self._max_tokens):
                break
            taken.append(self._waiting.popleft())
        return taken

    def _decode_within_memory(self, choices: Sequence[Choice]) -> None:
        """Decode a batch; if memory runs out, decode it again in halves, and make later batches smaller."""
        left = [choice for choice in choices if not choice.over]
        try:
            self._decode(left)
            return
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        empty_cache()  # outside the handler, whose traceback still holds the failed pass's tensors
        if len(left) > 1:  # tokens of the batch at its end, including padding
            longest = max(len(choice.row.token_ids) for choice in left)
            self._max_tokens = len(left) * (longest + max(choice.settings.max_new_tokens for choice in left)) // 2
        for choice in left:
            if choice.emitted or len(left) == 1:
                choice.fail("out of memory")
        half = len(left) // 2
        for part in (left[:half], left[half:]):
            self._decode_within_memory(part)

    def _decode(self, choices: Sequence[Choice]) -> None:
        if not choices:
            return
        for choice in choices:
            choice.begin(self.model)
        rows = [choice.row for choice in choices]
        given = [choice.settings for choice in choices]
        batch = self.model.batch(rows)
        thresholds = {dial.kind: [settings.thresholds[dial.kind] for settings in given] for dial in self.dials}
        steps = max(settings.max_new_tokens for settings in given)

        def watch(tokens: list[int]) -> None:
            answers = readings.of_answers()
            for i, (choice, token) in enumerate(zip(choices, tokens, strict=True)):
                if not choice.emitted:
                    choice.read(readings.of_prompt(i, answers))
                elif answers:
                    choice.read_on(readings.of_prompt(i, answers))
                choice.push(token)
            if self._closing or all(choice.over for choice in choices):
                raise _StopDecoding

        with steering(self.model, self.dials, batch, rows, thresholds) as readings, suppress(_StopDecoding):
            if any(settings.temperature for settings in given):
                seeds, temperatures, top_ps = zip(*((s.seed, s.temperature, s.top_p) for s in given), strict=True)
                self.model.sample(batch, steps, seeds, temperatures, top_ps, watch=watch)
            else:
                self.model.generate(batch, steps, watch=watch)
        for choice in choices:  # one by one: never more memory than the batch took
            choice.read_answer(partial(read_tokens, self.model, self.dials, choice.row))


class _StopDecoding(Exception):  # noqa: N818 - not an error
    """Ends decoding early: all rows have ended."""
