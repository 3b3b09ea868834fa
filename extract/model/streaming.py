"""Streams a response as text while it is decoded: from tokens as they come, or as an iterator over its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue
from threading import Event, Thread

from extract.chat.render import Rendered
from extract.chat.thinking import reopened
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.padded_batch import Batch

LONGEST = 64  # tokens that are decoded again with each new one
OVERLAP = 8


class StreamedText:
    """The text of one response while it is decoded; the joined pieces equal the text from `decode`.

    An incomplete character is held back, and the last word if the tokenizer removes blanks before punctuation. The
    rendered prompt `row` shows whether it opened a thought.
    """

    def __init__(self, model: ChatModel, row: Rendered | None = None) -> None:
        self._model, self._ends = model, set(model.eos_ids)
        self._opening = reopened(row.text, "") if row else ""
        self._holds_words = bool(getattr(model.tokenizer, "clean_up_tokenization_spaces", False))
        self._given = 0
        self._before, self._context, self._tail = "", 0, 0  # the text of all tokens before the tail; where both start
        self.token_ids: list[int] = []
        self.ended = False

    @property
    def text(self) -> str:
        """The text decoded so far."""
        return self._opening + (self._before + self._after(self._context, self._tail)).strip()

    def push(self, token: int) -> str:
        """Add the next token and return the new final text, often empty; empty after an end token."""
        self.ended = self.ended or token in self._ends
        if self.ended:
            return ""
        self.token_ids.append(token)
        if len(self.token_ids) - self._context > LONGEST:
            self._shorten()
        settled = self.text.rstrip("\N{REPLACEMENT CHARACTER}")
        return self._give(settled[: settled.rfind(" ") + 1] if self._holds_words else settled)

    def rest(self) -> str:
        """Return the text held back; call it at the end of the response."""
        return self._give(self.text)

    def _after(self, context: int, tail: int) -> str:
        """Return the text from token `tail` on, decoded from `context` on: a first token often loses its blank."""
        decode, tokens = self._model.decode_piece, self.token_ids
        return decode(tokens[context:])[len(decode(tokens[context:tail])) :]

    def _shorten(self) -> None:
        """Move the tail on, where the text before it is settled and the whole stays the same; else wait a token."""
        context, tail = len(self.token_ids) - 2 * OVERLAP, len(self.token_ids) - OVERLAP
        whole = self._before + self._after(self._context, self._tail)
        rest = self._after(context, tail)
        if rest and "\N{REPLACEMENT CHARACTER}" not in rest and whole.endswith(rest):
            self._before, self._context, self._tail = whole[: -len(rest)], context, tail

    def _give(self, settled: str) -> str:
        new, self._given = settled[self._given :], max(self._given, len(settled))
        return new


def stream(model: ChatModel, batch: Batch, max_new_tokens: int, row: Rendered | None = None) -> Iterator[str]:
    """Yield the greedy response to one prompt in pieces, under open `editing` blocks; closing it ends the decoding."""
    if len(batch.tokens) != 1:  # several need `model.generate(…, watch=…)` and a `StreamedText` a row
        raise UserError(f"expected a batch of one prompt to stream, got {len(batch.tokens)} prompts")
    pieces: Queue[str | BaseException | None] = Queue()
    closed, response = Event(), StreamedText(model, row)

    def watch(tokens: list[int]) -> None:
        if closed.is_set():
            raise _StreamClosed
        pieces.put(response.push(tokens[0]))

    def work() -> None:
        try:
            model.generate(batch, max_new_tokens, watch=watch)
            pieces.put(response.rest())
            pieces.put(None)
        except BaseException as error:  # raised again in the reading thread
            pieces.put(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            if piece:
                yield piece
    finally:
        closed.set()
        thread.join()


class _StreamClosed(Exception):  # noqa: N818
    """Ends the decoding after the reader closed the iterator."""
