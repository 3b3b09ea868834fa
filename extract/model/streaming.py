"""Streams a response as text while it is decoded.

`StreamedText` turns one row's tokens into text as they come, and is all a caller needs who lives in the same thread
(`model.generate(…, watch=…)`); `stream` is an iterator over the pieces of one response, decoded in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue
from threading import Event, Thread

from extract.chat.render import Rendered
from extract.chat.thinking import reopened
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.padded_batch import Batch


class StreamedText:
    """The text of one response while it is decoded; the pieces together are the text that `decode` gives.

    A piece is held back while it may still change: half a character, and, where the tokenizer tidies blanks before
    punctuation, the last word. `row` says how the prompt ended, for a thought that it opened.
    """

    def __init__(self, model: ChatModel, row: Rendered | None = None) -> None:
        self._model, self._ends = model, set(model.eos_ids)
        self._opening = reopened(row.text, "") if row else ""
        self._holds_words = bool(getattr(model.tokenizer, "clean_up_tokenization_spaces", False))
        self._given = 0
        self.token_ids: list[int] = []
        self.ended = False

    @property
    def text(self) -> str:
        """All of it so far."""
        return self._opening + self._model.decode(self.token_ids)

    def push(self, token: int) -> str:
        """Take the next token and return the text that is settled by it, often none; after an end, nothing is."""
        self.ended = self.ended or token in self._ends
        if self.ended:
            return ""
        self.token_ids.append(token)
        settled = self.text.rstrip("\N{REPLACEMENT CHARACTER}")
        return self._give(settled[: settled.rfind(" ") + 1] if self._holds_words else settled)

    def rest(self) -> str:
        """Return what was held back, once the response is at its end."""
        return self._give(self.text)

    def _give(self, settled: str) -> str:
        new, self._given = settled[self._given :], max(self._given, len(settled))
        return new


def stream(model: ChatModel, batch: Batch, max_new_tokens: int, row: Rendered | None = None) -> Iterator[str]:
    """Yield the greedy response to one prompt in pieces, under the edits of the surrounding blocks.

    Closing the iterator early ends the decoding. The blocks around it must stay open until it is done.

    Raises:
        UserError: the batch holds several prompts; those need `model.generate(…, watch=…)` and a `StreamedText` a row.
    """
    if len(batch.tokens) != 1:
        raise UserError(f"one response is streamed at a time; the batch holds {len(batch.tokens)} prompts")
    return _streamed(model, batch, max_new_tokens, StreamedText(model, row))


def _streamed(model: ChatModel, batch: Batch, max_new_tokens: int, pieces: StreamedText) -> Iterator[str]:
    came: Queue[str | BaseException | None] = Queue()
    closed = Event()

    def watch(tokens: list[int]) -> None:
        if closed.is_set():
            raise _StreamClosed
        came.put(pieces.push(tokens[0]))

    def work() -> None:
        try:
            model.generate(batch, max_new_tokens, watch=watch)
            came.put(pieces.rest())
            came.put(None)
        except BaseException as error:  # it is raised again where the pieces are read
            came.put(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while (piece := came.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            if piece:
                yield piece
    finally:
        closed.set()
        thread.join()


class _StreamClosed(Exception):  # noqa: N818 - no error: whoever read the pieces has gone
    """Ends the decoding once the reader has closed the iterator."""
