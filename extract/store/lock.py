"""The lock for writing one store, held by one process or shared by several."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from extract.errors import UserError
from extract.store.file_lock import FileLock
from extract.store.identity import Identity, first_difference

PATIENCE = 10.0  # seconds to wait until another process has opened its writer lock to others


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
                raise UserError(
                    f"{self._store} is being written by {_named(holder)}; wait until it ends, or run both with --shared"
                )
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
            raise UserError(
                f"{self._store} is being written by {_named(holder)} with another {field}; "
                "choose another directory with --out"
            )


def _named(holder: LockHolder | None) -> str:
    return f"process {holder.process} on {holder.host}" if holder else "another process"
