"""Lines of a text file: the encoding by byte order mark, invalid bytes refused or mended."""

from __future__ import annotations

import codecs
import difflib
import io
import re
from collections.abc import Callable, Iterator
from encodings.aliases import aliases
from pathlib import Path
from typing import Literal

from extract.errors import UserError

EncodingRepair = Literal[
    "windows_1252", "replaced"
]  # bytes read as another encoding; U+FFFD put in place of what is none
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_BYTE = re.compile("[\udc80-\udcff]")  # a byte that is no text, as `surrogateescape` keeps it
_HALF = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class TextLines:
    """The lines of a file, with their ends as they are.

    Args:
        encoding: for instance latin-1; otherwise UTF-8, or UTF-16 where the file begins with its mark.
        mended: given, bytes that are no text are read rather than refused: as Windows-1252 where UTF-8 was expected,
            as U+FFFD under another encoding; it is called for each row that had any.

    Raises:
        UserError: the encoding is unknown, or a line is no text and not to be mended; names it.
    """

    def __init__(
        self, path: Path, encoding: str | None = None, on_repair: Callable[[EncodingRepair], None] | None = None
    ) -> None:
        self.path, self.lenient = path, on_repair is not None
        self._on_repair, self._repairs = on_repair, set[EncodingRepair]()
        self._named = encoding is not None
        self._encoding = _codec(encoding) if encoding is not None else _marked(path)

    def end_row(self) -> None:
        """Tell what was mended in the lines since the last row ended."""
        if self._on_repair is not None:
            for repair in sorted(self._repairs):
                self._on_repair(repair)
        self._repairs.clear()

    def __iter__(self) -> Iterator[str]:
        errors = "surrogatepass" if self._encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
        number = 0
        with self.path.open(encoding=self._encoding, errors=errors, newline="") as file:
            try:
                for number, line in enumerate(file, start=1):
                    text = line.removeprefix("\ufeff") if number == 1 else line
                    yield text if is_text(text) else self._repair(text, number)
            except UnicodeDecodeError as error:  # what neither way of keeping bytes can keep, such as a cut character
                raise self._refusal(number + 1, error.reason) from None

    def _repair(self, line: str, number: int) -> str:
        if not self.lenient:
            raise self._refusal(number, self._reason(line))
        if self._encoding == "utf-8" and not self._named:
            self._repairs.add("windows_1252")
            return _BYTE.sub(lambda byte: bytes([ord(byte[0]) - 0xDC00]).decode("cp1252", "replace"), line)
        self._repairs.add("replaced")
        return without_halves(line)

    def _reason(self, line: str) -> str:
        try:
            line.encode(self._encoding, "surrogateescape").decode(self._encoding)
        except UnicodeDecodeError as error:
            return error.reason
        except UnicodeEncodeError:
            pass
        return "half of a surrogate pair"

    def _refusal(self, number: int, reason: str) -> UserError:
        name = self._encoding.upper()
        return UserError(f"{self.path}, line {number}: not {name} text: {reason}; save the file as UTF-8")


def is_text(text: str) -> bool:
    """Say whether a string is valid Unicode, so that it can be written: without halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_halves(text: str) -> str:
    """Put U+FFFD in place of every half of a surrogate pair."""
    return _HALF.sub(_REPLACEMENT, text)


def _marked(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(3)
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), "utf-8")


def _codec(encoding: str) -> str:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding).close()
        return codecs.lookup(encoding).name
    except (LookupError, ValueError):  # unknown, or none between bytes and text
        near = difflib.get_close_matches(encoding.lower().replace("-", "_"), sorted(aliases), n=1)
        hint = f"did you mean {near[0]}?" if near else "for instance utf-8, latin-1, cp1252, shift_jis"
        raise UserError(f"no such text encoding: {encoding!r}; {hint}") from None
