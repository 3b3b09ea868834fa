"""Atomic writes: temporary file, fsync, rename.

HDF5 cannot recover when a write fails in the middle (a full disk): closing the file fails again, and so may the
interpreter's exit. So HDF5 is given a Python file object that remembers its first error and keeps every later write in
memory, where HDF5 finds it again; HDF5 closes cleanly, and the error is raised afterwards, as what it was.
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
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._at = 0
        self._kept: list[tuple[int, bytes]] = []  # writes after the first that failed, by their place
        self.error: BaseException | None = None

    def write(self, data: bytes | memoryview) -> int:
        left = memoryview(data).cast("B")
        length = len(left)
        try:
            while len(left) and self.error is None:
                written = os.pwrite(self._fd, left, self._at)
                self._at, left = self._at + written, left[written:]
        except BaseException as error:  # Ctrl-C may arrive here too
            self.error = error
        if len(left):
            self._kept.append((self._at, bytes(left)))
            self._at += len(left)
        return length

    def check(self) -> None:
        """Raise what has gone wrong so far, before more is kept in memory than the end of a file takes."""
        if self.error is not None:
            raise self.error

    def readinto(self, into: bytearray | memoryview) -> int:
        view = memoryview(into).cast("B")
        read = os.preadv(self._fd, [view], self._at)
        for start, data in self._kept:
            begin, end = max(start, self._at), min(start + len(data), self._at + len(view))
            if begin < end:
                view[begin - self._at : end - self._at] = data[begin - start : end - start]
                read = max(read, end - self._at)
        self._at += read
        return read

    def read(self, size: int = -1) -> bytes:
        data = os.pread(self._fd, size if size >= 0 else os.fstat(self._fd).st_size, self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._fd).st_size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int) -> int:
        try:
            if self.error is None:
                os.ftruncate(self._fd, size)
        except BaseException as error:
            self.error = error
        return size

    def flush(self) -> None:
        """Leave it to `settle`, once for all."""

    def settle(self) -> None:
        """Wait until the disk has everything; raise what went wrong on the way."""
        self.check()
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def atomic_file(final: Path, partial: Path | None = None) -> Iterator[DeferredErrorFile]:
    """Yield a file to write; rename it to `final` when the block ends well, and leave nothing when it does not.

    Raises:
        UserError: the disk is full, or the place cannot be written.
    """
    partial = partial or final.with_name(final.name + ".partial")
    try:
        sink = DeferredErrorFile(partial)
    except OSError as error:
        raise unwritable(partial, error) from None
    try:
        try:
            yield sink
        except Exception:
            if sink.error is None:  # else HDF5's own error only follows from the first
                raise
        _settle(sink, partial, final)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    finally:
        sink.close()


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Yield a temporary path to write; rename it to `final` when the block ends well, remove it when it does not.

    For libraries that take a path. Where a file object will do, `atomic_file` also keeps HDF5 in order on a full disk.

    Raises:
        UserError: the disk is full, or the place cannot be written.
    """
    partial = final.with_name(f"{final.name}.{secrets.token_hex(4)}.partial")  # several may write one file at once
    try:
        yield partial
        with partial.open("rb") as written:
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
    """Write JSON Lines atomically, a row at a time; a number that is not finite is an error."""
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def unwritable(path: Path, error: OSError) -> UserError:
    """Say in one line why a file cannot be written."""
    return UserError(f"cannot write {path}: {error.strerror or error}; nothing finished is lost: free some space or "
                     "set the permissions, and run the command again, or choose another place with --out")  # fmt: skip


def _settle(sink: DeferredErrorFile, partial: Path, final: Path) -> None:
    try:
        sink.settle()
        partial.replace(final)
        sync_folder(final.parent)
    except OSError as error:
        raise unwritable(partial, error) from None


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut (some file systems cannot sync a folder; those are left as they are)."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)
