"""Advisory file locks on a store and on its shards, released when their process ends.

Locks are `flock`s on open files, so a second writer in the same process is held off too, and what `kill -9` leaves
behind is a file nobody holds. A lock file is unlinked only by who holds it alone; who then locks a file that is no
longer the one of that name tries again. Works across machines where the file system carries flock (NFS does).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from extract.errors import UserError
from extract.store.identity import Identity, first_difference

PATIENCE = 10.0  # seconds in which another process must have made up its mind how to hold the writer lock


class FileLock:
    """A non-blocking lock on one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._owner = os.getpid()

    def acquire(self, *, shared: bool = False) -> bool:
        """Take the lock; False where another holds it.

        Raises:
            UserError: the folder cannot be written, or its file system has no locks.
        """
        self._owner = os.getpid()
        while True:
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise UserError(
                    f"cannot write {self.path}: {error.strerror}; choose another place with --out"
                ) from None
            if not _flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, self.path):
                os.close(fd)
                return False
            if _names(self.path, fd):
                self._fd = fd
                return True
            os.close(fd)  # its last holder unlinked it in between

    def convert(self, *, shared: bool) -> bool:
        """Change how the lock is held; False where others are in the way, and then it is held no longer."""
        assert self._fd is not None
        if _flock(self._fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, self.path) and _names(self.path, self._fd):
            return True
        os.close(self._fd)
        self._fd = None
        return False

    def release(self, *, unlink: bool = False) -> None:
        """Give the lock up; `unlink` only where it is held alone. In a forked child the parent's lock stays."""
        if self._fd is None:
            return
        if unlink and self._owner == os.getpid():
            self.path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    def write(self, text: str) -> None:
        """Say in the file who holds it."""
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from None


@dataclass(frozen=True)
class LockHolder:
    """The process that holds a writer lock, as its lock file names it."""

    process: int
    host: str
    shared: bool
    identity: str  # the text of the store's identity

    @property
    def text(self) -> str:
        return json.dumps(asdict(self) | {"identity": json.loads(self.identity)})

    @staticmethod
    def parse(text: str) -> LockHolder:
        """Make a holder of the text of a lock file.

        Raises:
            LookupError, TypeError, ValueError: the text is incomplete, as while it is being written.
        """
        record = dict(json.loads(text))
        return LockHolder(**record | {"identity": json.dumps(record["identity"])})


class WriterLock:
    """The right to write one store: of one process, or of several that share it and make the same store."""

    def __init__(self, store: Path, path: Path, identity: Identity, shared: bool) -> None:
        self._store, self._lock, self._identity, self._shared = store, FileLock(path), identity, shared

    def acquire(self) -> bool:
        """Take the lock; True where no other process writes.

        Raises:
            UserError: another process writes this store alone, or writes something else into it.
        """
        until = time.monotonic() + PATIENCE
        while not self._lock.acquire():
            holder = self._holder()
            if (holder and not holder.shared) or not self._shared or time.monotonic() > until:
                raise UserError(f"{self._store} is being written by {_named(holder)}; wait until it ends, "
                                "or give --shared to both")  # fmt: skip
            if self._lock.acquire(shared=True):
                self._refuse_another(self._holder())
                return False
            time.sleep(0.02)  # it has just begun, and will let others in
        mine = LockHolder(os.getpid(), socket.gethostname(), self._shared, self._identity.text)
        try:
            self._lock.write(mine.text)
        except UserError:  # a full disk: nobody must find the lock held by a writer that gave up
            self._lock.release(unlink=True)
            raise
        return True

    def open_to_others(self) -> None:
        """Let other processes in, where this one is to share."""
        while self._shared and not self._lock.convert(shared=True):
            if not self.acquire():  # another process got in first, and the lock is now shared with it
                return

    def leave(self) -> bool:
        """Say whether this process is the last to write; it then holds the lock alone until `release`."""
        return not self._shared or self._lock.convert(shared=False)

    def release(self, *, unlink: bool) -> None:
        self._lock.release(unlink=unlink)

    def _holder(self) -> LockHolder | None:
        try:
            return LockHolder.parse(self._lock.path.read_text())
        except (LookupError, OSError, TypeError, ValueError):  # not yet written, or just gone
            return None

    def _refuse_another(self, holder: LockHolder | None) -> None:
        if holder and (field := first_difference(holder.identity, self._identity)):
            self._lock.release()
            raise UserError(f"{self._store} is being written by {_named(holder)} with another {field}; "
                            "choose another run directory with --out")  # fmt: skip


def _named(holder: LockHolder | None) -> str:
    return f"process {holder.process} on {holder.host}" if holder else "another process"


def _flock(fd: int, how: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise UserError(f"cannot lock {path}: {error.strerror}; its file system has no file locks, so two writers "
                        "could not be told apart: choose another with --out") from None  # fmt: skip
    return True


def _names(path: Path, fd: int) -> bool:
    """Say whether a path still names this open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
