"""Advisory file locks, released when their process ends.

Locks are `flock`s on open files. They also exclude a second writer in the same process, and after `kill -9` only an
unlocked file remains. Only a process with an exclusive lock unlinks a lock file; a process that locks a file that was
unlinked meanwhile tries again. Locks work across machines if the file system supports flock (NFS does).
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from extract.errors import UserError


class FileLock:
    """A non-blocking lock on one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._owner = os.getpid()

    def acquire(self, *, shared: bool = False) -> bool:
        """Take the lock; return False if another process holds it.

        Raises:
            UserError: the folder cannot be written, or its file system does not support locks.
        """
        self._owner = os.getpid()
        while True:
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise UserError(
                    f"cannot write {self.path}: {error.strerror}; choose another directory with --out"
                ) from None
            if not _flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, self.path):
                os.close(fd)
                return False
            if _names(self.path, fd):
                self._fd = fd
                return True
            os.close(fd)  # its last holder unlinked it meanwhile

    def convert(self, *, shared: bool) -> bool:
        """Change the lock between shared and exclusive; return False and release it if others prevent this."""
        assert self._fd is not None
        if _flock(self._fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, self.path) and _names(self.path, self._fd):
            return True
        os.close(self._fd)
        self._fd = None
        return False

    def release(self, *, unlink: bool = False) -> None:
        """Release the lock; `unlink` only with an exclusive lock. In a forked child the parent's lock stays."""
        if self._fd is None:
            return
        if unlink and self._owner == os.getpid():
            self.path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    @property
    def held(self) -> bool:
        """Whether some process holds the lock now; writes nothing, and is False where the file cannot be read."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _flock(fd, fcntl.LOCK_EX, self.path)
        except UserError:  # no locks on this file system
            return False
        finally:
            os.close(fd)

    def write(self, text: str) -> None:
        """Write the holder of the lock into its file."""
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}; choose another directory with --out"
            ) from None


def _flock(fd: int, how: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise UserError(
            f"cannot lock {path}: {error.strerror}; its file system does not support file locks, so two "
            "writers could collide; choose another directory with --out"
        ) from None
    return True


def _names(path: Path, fd: int) -> bool:
    """Return whether a path still refers to this open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
