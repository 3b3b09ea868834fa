"""Advisory file locks on a store and on its shards, released when their process ends.

Locks are `flock`s on open files. They also exclude a second writer in the same process, and after `kill -9` only an
unlocked file remains. Only a process with an exclusive lock unlinks a lock file; a process that locks a file that was
unlinked meanwhile tries again. Locks work across machines if the file system supports flock (NFS does).
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

PATIENCE = 10.0  # seconds to wait until another process has opened its writer lock to others


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


@dataclass(frozen=True)
class LockHolder:
    """The process that holds a writer lock, as recorded in its lock file."""

    process: int
    host: str
    shared: bool
    identity: str  # JSON text of the store's identity

    @property
    def text(self) -> str:
        return json.dumps(asdict(self) | {"identity": json.loads(self.identity)})

    @staticmethod
    def parse(text: str) -> LockHolder:
        """Parse a holder from the text of a lock file.

        Raises:
            LookupError, TypeError, ValueError: the text is incomplete, for example while it is being written.
        """
        record = dict(json.loads(text))
        return LockHolder(**record | {"identity": json.dumps(record["identity"])})


class WriterLock:
    """The lock for writing one store, held by one process, or shared by several that write the same store."""

    def __init__(self, store: Path, path: Path, identity: Identity, shared: bool) -> None:
        self._store, self._lock, self._identity, self._shared = store, FileLock(path), identity, shared

    def acquire(self) -> bool:
        """Take the lock; return True if no other process writes.

        Raises:
            UserError: another process writes this store without sharing it, or writes a different store there.
        """
        until = time.monotonic() + PATIENCE
        while not self._lock.acquire():
            holder = self._holder()
            if (holder and not holder.shared) or not self._shared or time.monotonic() > until:
                raise UserError(f"{self._store} is being written by {_named(holder)}; wait until it ends, "
                                "or run both with --shared")  # fmt: skip
            if self._lock.acquire(shared=True):
                self._refuse_another(self._holder())
                return False
            time.sleep(0.02)  # the other process has just started and will share the lock
        mine = LockHolder(os.getpid(), socket.gethostname(), self._shared, self._identity.text)
        try:
            self._lock.write(mine.text)
        except UserError:  # a full disk: a writer that stops must not keep the lock
            self._lock.release(unlink=True)
            raise
        return True

    def open_to_others(self) -> None:
        """Let other processes in, if this one shares the store."""
        while self._shared and not self._lock.convert(shared=True):
            if not self.acquire():  # another process got in first, and the lock is now shared with it
                return

    def leave(self) -> bool:
        """Return whether this process is the last writer; it then holds an exclusive lock until `release`."""
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
                            "choose another directory with --out")  # fmt: skip


def _named(holder: LockHolder | None) -> str:
    return f"process {holder.process} on {holder.host}" if holder else "another process"


def _flock(fd: int, how: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise UserError(f"cannot lock {path}: {error.strerror}; its file system does not support file locks, so two "
                        "writers could collide; choose another directory with --out") from None  # fmt: skip
    return True


def _names(path: Path, fd: int) -> bool:
    """Return whether a path still refers to this open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
