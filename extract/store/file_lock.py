"""Advisory file locks, released when their process ends.

They are exclusive `flock`s, also against a second writer in one process, and across machines where the file system has
them (as NFS); on Windows a locked byte far behind the text. The holder unlinks the file; who locks a file that was
unlinked meanwhile tries again.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from extract.atomic_write import make_folder, unwritable
from extract.errors import UserError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCKED_BYTE = 2**30  # on Windows, where nobody else can read what is locked


class FileLock:
    """A non-blocking lock on one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._owner = os.getpid()

    def acquire(self) -> bool:
        """Take the lock; return False if another process holds it."""
        self._owner = os.getpid()
        while True:
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise unwritable(self.path, error) from None
            if not _flock(fd, self.path):
                os.close(fd)
                return False
            with suppress(FileNotFoundError):
                if os.path.samestat(self.path.stat(), os.fstat(fd)):
                    self._fd = fd
                    return True
            os.close(fd)  # its last holder unlinked it meanwhile

    def release(self) -> None:
        """Release the lock and unlink its file; in a forked child the parent's lock stays."""
        if self._fd is None:
            return
        windows = sys.platform == "win32"  # there an open file stays, so it is closed first, and kept if another has it
        if windows:
            os.close(self._fd)
        if self._owner == os.getpid():
            with suppress(PermissionError if windows else FileNotFoundError):
                self.path.unlink()
        if not windows:
            os.close(self._fd)
        self._fd = None

    @property
    def held(self) -> bool:
        """Whether some process holds the lock now; writes nothing, and is False where the file cannot be read."""
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except OSError:
            return False
        try:
            return not _flock(fd, self.path)
        except UserError:  # no locks on this file system
            return False
        finally:
            os.close(fd)

    def write(self, text: str) -> None:
        """Write the holder of the lock into its file."""
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.write(self._fd, text.encode())
        except OSError as error:
            raise unwritable(self.path, error) from None


@contextmanager
def store_lock(store: Path) -> Iterator[None]:
    """Hold the lock of a store: one command at a time writes it; its workers write shards at once under this lock."""
    folder = shard_folder(store)
    make_folder(folder)
    lock = FileLock(folder / "writer.lock")
    if not lock.acquire():
        holder = ""
        with suppress(OSError):  # it has just ended
            holder = lock.path.read_text(encoding="utf-8")
        raise UserError(f"{store} is being written by {holder or 'another process'}; wait until it ends")
    try:  # also on a full disk a writer that stops must not keep the lock
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        lock.release()


def shard_folder(store: Path) -> Path:
    """Return the folder of a store's shards and of its lock."""
    return store.with_name(store.name + ".shards")


def _flock(fd: int, path: Path) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(fd, LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise UserError(
            f"cannot lock {path}: {error.strerror}; its file system does not support file locks, so two "
            "writers could collide; choose another directory with --out"
        ) from None
    return True
