"""One choice of a request: its prompt, its decoding settings, and the events that it emits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from extract.chat.render import Rendered, token_texts
from extract.chat.thinking import StreamedSplit
from extract.model.chat_model import ChatModel
from extract.model.streaming import StreamedText
from steering.controller import token_log_odds
from steering.dial import Dial, Kind, Threshold
from steering.gates import Reading

Finish = Literal["stop", "length"]


class TokenReading(BaseModel):
    """One token, and what each dial's probe reads at it.

    `log_odds` are of declining, by the dial's calibration, which holds only where the dial itself reads (`read_by`; of
    several tokens it reads the mean). At other tokens they are a score to compare tokens by. A character of several
    tokens is the text of the last of them; the others have an empty text.
    """

    token: str
    part: Literal["words", "template", "answer"]  # the user's last turn, the chat template after it, the answer
    log_odds: dict[Kind, float]
    read_by: list[Kind]


@dataclass(frozen=True)
class DecodingSettings:
    """How a choice is decoded."""

    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int
    stops: tuple[str, ...]
    thresholds: Mapping[Kind, Threshold]
    deadline: float  # by time.monotonic(); the answer ends there
    streamed: bool
    token_readings: bool = False  # the answer ends with the readings of every token


@dataclass(frozen=True)
class PromptRead:
    """The dials have read the prompt, or one has alarmed at a token of the answer."""

    readings: dict[Kind, Reading]


@dataclass(frozen=True)
class TextPiece:
    """The next piece of the answer's text, or of the thought before it; emitted only if the answer is streamed."""

    text: str
    thought: bool = False


@dataclass(frozen=True)
class Finished:
    """The answer is complete."""

    text: str  # its thought included
    finish: Finish
    n_tokens: int
    readings: dict[Kind, Reading]
    tokens: tuple[TokenReading, ...] | None = None  # where they are asked for


@dataclass(frozen=True)
class Failed:
    """The choice ended without an answer."""

    why: str
    transient: bool = True  # a later attempt may succeed


Event = PromptRead | TextPiece | Finished | Failed


class Choice:
    """A choice, decoded as one row of a batch; `emit` is called with each event, in the decoding thread."""

    def __init__(self, row: Rendered, settings: DecodingSettings, emit: Callable[[Event], None]) -> None:
        self.row: Rendered = row
        self.settings: DecodingSettings = settings
        self._emit = emit
        self.over: bool = False
        self.emitted: bool = False  # an event that cannot be taken back was emitted
        self.held = False  # a complete answer waits for `complete`
        self._readings: dict[Kind, Reading] = {}
        self._unread: Finished | None = None  # the end of an answer whose tokens are still to be read

    def begin(self, model: ChatModel) -> None:
        """Reset the text before decoding; a batch that does not fit into memory is decoded again in halves."""
        self._pieces, self._stops = StreamedText(model, self.row), StopSequences(self.settings.stops)
        self._text, self._split = "", StreamedSplit()

    def read(self, readings: dict[Kind, Reading]) -> None:
        if not self.over:
            self.emitted, self._readings = True, readings
            self._emit(PromptRead(readings))

    def read_on(self, readings: dict[Kind, Reading]) -> None:
        """Take what was read of the answer so far; says so where a dial has alarmed since the last time."""
        if not self.over:
            before, self._readings = self._readings, readings
            if self.settings.streamed and alarmed(readings) != alarmed(before):
                self._emit(PromptRead(readings))

    def push(self, token: int) -> None:
        """Add the next token; tokens after the end are ignored."""
        if self.over:
            return
        self._add(self._stops.push(self._pieces.push(token)))
        if self._stops.met or self._pieces.ended:
            self._end("stop")
        elif len(self._pieces.token_ids) >= self.settings.max_new_tokens or time.monotonic() > self.settings.deadline:
            self._end("length")

    def read_answer(self, read: Callable[[list[int]], tuple[TokenReading, ...]]) -> None:
        """Read the tokens of a complete answer where that is asked for, and end it."""
        if self._unread is not None:
            self.complete(tokens=read(self._pieces.token_ids))

    @property
    def is_held(self) -> bool:
        """Whether the answer is complete, and ends with `complete`."""
        return self._unread is not None

    def complete(self, **read: Any) -> None:
        """End a complete answer that was held back, with fields of `Finished`."""
        finished, self._unread = self._unread, None
        if finished is not None:  # not abandoned meanwhile
            self._emit(replace(finished, **read))

    def fail(self, why: str, *, transient: bool = True) -> None:
        """End without an answer, unless the choice has ended."""
        if not self.over or self._unread is not None:
            self.abandon()
            self._emit(Failed(why, transient))

    def abandon(self) -> None:
        self.over, self._unread = True, None

    def _end(self, finish: Finish) -> None:
        self._add(self._stops.push(self._pieces.rest()))
        finish = "stop" if self._stops.met else finish
        self._add(self._stops.rest(), last=True)
        self.over = True
        finished = Finished(self._text, finish, len(self._pieces.token_ids), self._readings)
        if self.settings.token_readings or self.held:
            self._unread = finished
        else:
            self._emit(finished)

    def _add(self, text: str, *, last: bool = False) -> None:
        self._text += text
        if self.settings.streamed:
            thought, answer = self._split.push(text, last=last)
            for new in (TextPiece(thought, thought=True), TextPiece(answer)):
                if new.text:
                    self._emit(new)


def alarmed(readings: Mapping[Kind, Reading]) -> list[Kind]:
    """Return the dials that alarmed at a token of the answer."""
    return [kind for kind, read in readings.items() if read.answer is not None and read.answer.at is not None]


class StopSequences:
    """Passes on pieces of a text up to the first stop sequence."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.met = False

    def push(self, piece: str) -> str:
        if self.met:
            return ""
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.met, self._held = True, ""
            return text[: min(places)]
        begun = [n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
        kept = max(begun, default=0)  # the end of the text may be the beginning of a stop sequence
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> str:
        held, self._held = self._held, ""
        return held


def read_tokens(
    model: ChatModel, dials: Sequence[Dial], row: Rendered, answer: Sequence[int]
) -> tuple[TokenReading, ...]:
    """Read every token from the user's last turn to the end of the answer, in one pass without interventions."""
    token_ids, first, words = [*row.token_ids, *answer], row.instruction.start, row.instruction.stop
    log_odds = token_log_odds(model, dials, [token_ids])
    own = {dial.kind: set(row.roles[dial.read.position]) for dial in dials if dial.read is not None}
    return tuple(
        TokenReading(
            token=text,
            part="words" if i < words else "template" if i < len(row.token_ids) else "answer",
            log_odds={kind: float(values[i]) for kind, (values,) in log_odds.items()},
            read_by=[kind for kind, places in own.items() if i in places],
        )
        for i, text in enumerate(token_texts(model.tokenizer, token_ids[first:]), first)
    )
