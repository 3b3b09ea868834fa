"""One choice of a request: its prompt, its decoding settings, and the events that it emits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.streaming import StreamedText
from serving.stop_sequences import StopSequences
from steering.conversation import DialReport
from steering.dial import Kind

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class DecodingSettings:
    """How a choice is decoded; a threshold of None is the dial's own, NaN leaves the row alone."""

    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int
    stops: tuple[str, ...]
    thresholds: Mapping[Kind, float | None]
    deadline: float  # by time.monotonic(): where it is passed, the answer ends
    streamed: bool


@dataclass(frozen=True)
class PromptRead:
    """The prompt was read."""

    reports: tuple[DialReport, ...]


@dataclass(frozen=True)
class TextPiece:
    """The answer goes on; only emitted where it is streamed."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The answer is whole."""

    text: str
    finish: Finish
    n_tokens: int


@dataclass(frozen=True)
class Failed:
    """There will be no answer."""

    why: str
    transient: bool = True  # it could go better at another time


Event = PromptRead | TextPiece | Finished | Failed


class Choice:
    """What is decoded in one row of a batch.

    Args:
        emit: is handed each event, in the thread that decodes.
    """

    def __init__(self, row: Rendered, settings: DecodingSettings, emit: Callable[[Event], None]) -> None:
        self.row, self.settings, self._emit = row, settings, emit
        self.over = False
        self.emitted = False  # something that cannot be taken back

    def begin(self, model: ChatModel) -> None:
        """Make ready to be decoded, perhaps anew: a batch that did not fit is decoded again in halves."""
        self._pieces, self._stops = StreamedText(model, self.row), StopSequences(self.settings.stops)
        self._text = ""

    def read(self, reports: tuple[DialReport, ...]) -> None:
        """Take what the dials read of the prompt."""
        if not self.over:
            self.emitted = True
            self._emit(PromptRead(reports))

    def push(self, token: int) -> None:
        """Take the next token; what comes after the end is not the answer's."""
        if self.over:
            return
        self._say(self._pieces.push(token))
        if self._stops.met or self._pieces.ended:
            self._end("stop")
        elif len(self._pieces.token_ids) >= self.settings.max_new_tokens or time.monotonic() > self.settings.deadline:
            self._end("length")

    def fail(self, why: str, *, transient: bool = True) -> None:
        """End without an answer, unless there is one."""
        if not self.over:
            self.over = True
            self._emit(Failed(why, transient))

    def abandon(self) -> None:
        """End since nobody waits for it; nobody is emitted."""
        self.over = True

    def _say(self, piece: str) -> None:
        if said := self._stops.push(piece):
            self._add(said)

    def _end(self, finish: Finish) -> None:
        self._say(self._pieces.rest())
        finish = "stop" if self._stops.met else finish
        if rest := self._stops.rest():
            self._add(rest)
        self.over = True
        self._emit(Finished(self._text, finish, len(self._pieces.token_ids)))

    def _add(self, said: str) -> None:
        self._text += said
        if self.settings.streamed:
            self._emit(TextPiece(said))
