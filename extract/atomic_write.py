"""Atomic writes: temporary file, fsync, rename.

HDF5 cannot recover from a failed write (a full disk): even the interpreter's exit may fail. So it gets a file object
that keeps what follows the first error in memory; HDF5 closes cleanly, and the error is raised afterwards.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from extract.errors import UserError


class DeferredErrorFile:
    """A binary file object for h5py (its `fileobj` driver) whose writes never raise; see `error`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self._at = 0
        self._kept: list[tuple[int, bytes]] = []  # writes after the first failed one: (offset, data)
        self.error: BaseException | None = None

    def write(self, data: bytes | memoryview) -> int:
        left = memoryview(data).cast("B")
        length = len(left)
        try:
            while len(left) and self.error is None:
                self._file.seek(self._at)
                written = self._file.write(left)
                self._at, left = self._at + written, left[written:]
        except BaseException as error:  # also Ctrl-C
            self.error = error
        if len(left):
            self._kept.append((self._at, bytes(left)))
            self._at += len(left)
        return length

    def check(self) -> None:
        """Raise the first error so far, before too much is kept in memory."""
        if self.error is not None:
            raise self.error

    def readinto(self, into: bytearray | memoryview) -> int:
        view = memoryview(into).cast("B")
        self._file.seek(self._at)
        read = self._file.readinto(view)
        for start, data in self._kept:
            begin, end = max(start, self._at), min(start + len(data), self._at + len(view))
            if begin < end:
                view[begin - self._at : end - self._at] = data[begin - start : end - start]
                read = max(read, end - self._at)
        self._at += read
        return read

    def read(self, size: int = -1) -> bytes:
        self._file.seek(self._at)
        data = self._file.read(size)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._file.fileno()).st_size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int) -> int:
        try:
            if self.error is None:
                self._file.truncate(size)
        except BaseException as error:
            self.error = error
        return size

    def flush(self) -> None:
        """Do nothing; `settle` syncs the file once."""

    def settle(self) -> None:
        """Sync the file to the disk; raise the first write error, if any."""
        self.check()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@contextmanager
def atomic_file(final: Path, *, keep_first: bool = False) -> Iterator[DeferredErrorFile]:
    """Yield a file to write; rename it to `final` on success, unless that exists and `keep_first`; else UserError."""
    partial = _partial(final)
    try:
        sink = DeferredErrorFile(partial)
    except OSError as error:
        raise unwritable(final, error) from None
    try:
        try:
            yield sink
        except Exception:
            if sink.error is None:  # else HDF5's error is only a consequence of the first error
                raise
        try:
            sink.settle()
            sink.close()  # Windows renames no open file
            if not (keep_first and final.exists()):
                partial.replace(final)
                sync_folder(final.parent)
        except OSError as error:
            raise unwritable(final, error) from None
    finally:
        sink.close()
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Yield a temporary path and rename it to `final` on success, else remove it; UserError if it cannot be written."""
    partial = _partial(final)
    try:
        yield partial
        with partial.open("r+b") as written:  # Windows syncs only what may be written
            os.fsync(written.fileno())
        partial.replace(final)
        sync_folder(final.parent)
    except OSError as error:
        raise unwritable(final, error) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, record: object) -> None:
    """Write JSON atomically; a number that is not finite is an error."""
    write_text(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[object]) -> None:
    """Write JSON Lines atomically, row by row; a number that is not finite is an error."""
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def make_folder(path: Path) -> None:
    """Make a directory and those above it; raises UserError if it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> UserError:
    """Return a one-line error that says why a file cannot be written."""
    return UserError(
        f"cannot write {path}: {error.strerror or error}; finished work is kept: free disk space or set "
        "the permissions and run the command again, or choose another directory with --out"
    )


def _partial(final: Path) -> Path:
    """Return a temporary name that no other process uses: several may write one file."""
    return final.with_name(f"{final.name}.{secrets.token_hex(4)}.partial")


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename survives a power cut; systems that cannot do this, as Windows, are skipped."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
