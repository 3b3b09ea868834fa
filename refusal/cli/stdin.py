"""`-` for a file: standard input, kept in a temporary file, because some files are read more than once."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from extract.errors import UserError

P = TypeVar("P", Path, Path | None)
STDIN = Path("-")
CALLED = "standard input"  # in messages
PARQUET = b"PAR1"


class StandardInput:
    """Within its block, `file` stands in for `-`, and errors name standard input instead of the temporary file."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._file: Path | None = None

    def __enter__(self) -> StandardInput:
        return self

    def file(self, given: P) -> P:
        """Return the path of a file with what came on standard input where `-` is given, else the path."""
        if given != STDIN:
            return given
        if self._file is not None:
            raise UserError("- (standard input) is given twice; it can be read once")
        self._folder = Path(tempfile.mkdtemp(prefix="refusal-"))
        written = self._folder / "stdin"
        with written.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        self._file = written.replace(written.with_suffix(_suffix(written)))
        return self._file

    def named(self, text: str) -> str:
        return text if self._file is None else text.replace(str(self._file), CALLED)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, UserError) and self._file is not None:
            raise UserError(self.named(str(error))) from None


def lines_of_stdin() -> list[str]:
    """Return the lines of standard input that are not empty."""
    lines = [line.strip() for line in sys.stdin.read().splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{CALLED} is empty")
    return lines


def _suffix(file: Path) -> str:
    with file.open("rb") as opened:
        start = opened.read(4096)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise UserError(f"{CALLED} is empty")
    if start.startswith(PARQUET):
        return ".parquet"
    return {b"{": ".jsonl", b"[": ".json"}.get(text[:1], ".csv")
