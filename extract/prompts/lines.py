"""Lines of a text file: detects the encoding by byte order mark, refuses or repairs invalid bytes."""

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
_BYTE = re.compile("[\udc80-\udcff]")  # an invalid byte, as `surrogateescape` encodes it
_HALF = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class TextLines:
    """The lines of a file, with unchanged line ends.

    Args:
        encoding: for example latin-1; None means UTF-8, or UTF-16 if the file starts with its byte order mark.
        on_repair: if given, invalid bytes are repaired and not refused: read as Windows-1252 in a file assumed to be
            UTF-8, replaced by U+FFFD under a given encoding. It is called once per kind of repair in each row.

    Raises:
        UserError: the encoding is unknown, or a line has invalid bytes and `on_repair` is None; names the line.
    """

    def __init__(
        self, path: Path, encoding: str | None = None, on_repair: Callable[[EncodingRepair], None] | None = None
    ) -> None:
        self.path, self.lenient = path, on_repair is not None
        self._on_repair, self._repairs = on_repair, set[EncodingRepair]()
        self._named = encoding is not None
        self._encoding = _codec(encoding) if encoding is not None else _marked(path)

    def end_row(self) -> None:
        """Report the repairs in the lines since the last row ended."""
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
            except UnicodeDecodeError as error:  # not representable by either error handler, such as a cut character
                raise self._refusal(number + 1, error.reason) from None

    def _repair(self, line: str, number: int) -> str:
        if not self.lenient:
            raise self._refusal(number, self._reason(line))
        if self._encoding == "utf-8" and not self._named:
            self._repairs.add("windows_1252")
            return _BYTE.sub(lambda byte: bytes([ord(byte[0]) - 0xDC00]).decode("cp1252", "replace"), line)
        self._repairs.add("replaced")
        return replace_surrogates(line)

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
    """Return whether a string is valid Unicode, without lone surrogates, so that it can be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """Replace every lone surrogate by U+FFFD."""
    return _HALF.sub(_REPLACEMENT, text)


def _marked(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(3)
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), "utf-8")


def _codec(encoding: str) -> str:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding).close()
        return codecs.lookup(encoding).name
    except (LookupError, ValueError):  # unknown, or not a text encoding
        near = difflib.get_close_matches(encoding.lower().replace("-", "_"), sorted(aliases), n=1)
        hint = f"did you mean {near[0]}?" if near else "use for example utf-8, latin-1, cp1252, shift_jis"
        raise UserError(f"no such text encoding: {encoding!r}; {hint}") from None
