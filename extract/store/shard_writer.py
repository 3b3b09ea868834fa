"""Writer of a store: shards in any order, by one process or several, then the master file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.store.hdf5 import open_hdf5, open_verified
from extract.store.identity import Identity, first_difference, read_identity, refuse_schema
from extract.store.lock import FileLock, WriterLock
from extract.store.master import read_digests, write_master
from extract.store.shard_files import CapturedShard, ShardFiles, digest_of

__all__ = ["CapturedShard", "ShardWriter"]
PAUSE = 0.1  # seconds between looks at shards other processes hold


class ShardWriter:
    """Writes one store. Alone by default; processes that all pass `shared` divide its shards among them.

    A shard is claimed by a lock that ends with its process, so one that dies leaves its shard to the others. The last
    writer to leave removes lock files and what killed ones left half written.
    """

    def __init__(self, path: Path, identity: Identity, n_prompts: int, d_model: int, shared: bool = False) -> None:
        self.path = path
        self.identity = identity
        self.files = ShardFiles(path, identity, n_prompts, d_model)
        self._lock = WriterLock(path, self.folder / "writer.lock", identity, shared)
        self._claims: dict[int, FileLock] = {}
        self._guard = threading.Lock()  # `write` may run in another thread than `todo`
        self._process = -1

    def __enter__(self) -> ShardWriter:
        """Take the writer lock.

        Raises:
            UserError: another process writes, the store there is of something else or damaged, or cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write {self.folder}: {error.strerror}; choose another place with --out") from None
        alone = self._lock.acquire()
        try:
            self._refuse_another_store()
            if alone:
                self._sweep()
        except BaseException:
            self._lock.release(unlink=alone)
            raise
        if alone:
            self._lock.open_to_others()
        self._process = os.getpid()
        return self

    def __exit__(self, *_: object) -> None:
        """Give up the claims and the writer lock; a forked child leaves its parent's alone."""
        with self._guard:
            for claim in self._claims.values():
                claim.release(unlink=True)
            self._claims.clear()
        if os.getpid() != self._process:
            self._lock.release(unlink=False)
        elif self._lock.leave():
            self._sweep()
            self._lock.release(unlink=True)

    @property
    def folder(self) -> Path:
        return self.files.folder

    @property
    def n_shards(self) -> int:
        return self.files.n_shards

    def rows(self, shard: int) -> range:
        """Return the prompt rows of one shard."""
        return self.files.rows(shard)

    def done(self, shard: int) -> bool:
        """Say whether a shard is already there, whole (it is renamed only when it is)."""
        return self.files.file(shard).exists()

    def todo(self) -> Iterator[int]:
        """Claim and yield shards until all that this process does not hold are done.

        Waits for shards that other live processes hold, and takes over those of dead ones.
        """
        while left := [s for s in range(self.n_shards) if s not in self._claims and not self.done(s)]:
            claimed = False
            for shard in left:
                if self._claim(shard):
                    claimed = True
                    yield shard
            if not claimed:
                time.sleep(PAUSE)

    def write(self, shard: int, captured: CapturedShard) -> None:
        """Write one shard, in this or in another thread; it is there when this returns.

        Raises:
            UserError: a value is NaN or infinite, or becomes so in the store's dtype, the disk is full, or another
                process is writing this shard.
        """
        if os.getpid() != self._process:
            raise RuntimeError("this writer was opened in another process; open one in each")
        if shard not in self._claims and not self._claim(shard):
            if self.done(shard):
                return
            raise UserError(f"shard {shard} of {self.path} is being written by another process; wait until it ends")
        self.files.write(shard, captured)
        with self._guard:
            self._claims.pop(shard).release(unlink=True)

    def finish(self, prompts: Sequence[Prompt], rendered: Sequence[Rendered], versions: dict[str, str]) -> None:
        """Write the master file over all shards and rename it into place; leave one alone that is already theirs.

        Raises:
            UserError: a shard is missing, damaged or another's, or the disk is full.
        """
        with self._one_at_a_time():
            digests = []
            for shard in range(self.n_shards):
                with self.files.open(shard) as file:
                    digests.append(digest_of(file))
            if not self.path.exists() or read_digests(self.path) != digests:
                write_master(self.files, digests, prompts, rendered, versions)

    def _claim(self, shard: int) -> bool:
        with self._guard:
            lock = FileLock(self.files.file(shard).with_suffix(".lock"))
            if shard in self._claims or not lock.acquire():
                return False
            if self.done(shard):  # finished between the look and the lock
                lock.release(unlink=True)
                return False
            self._claims[shard] = lock
            return True

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        lock = FileLock(self.folder / "master.lock")
        while not lock.acquire():
            time.sleep(PAUSE)
        try:
            yield
        finally:
            lock.release(unlink=True)

    def _sweep(self) -> None:
        """Remove what writers that were killed left behind; nobody else writes now."""
        left = [*self.folder.glob("*.partial"), *self.folder.glob("*-of-*.lock"), self.folder / "master.lock"]
        with suppress(OSError):
            for file in [*left, self.path.with_name(self.path.name + ".partial")]:
                file.unlink(missing_ok=True)

    def _refuse_another_store(self) -> None:
        """Refuse a place where another store, or part of one, stands."""
        if self.path.exists():  # without its shards it still says what rows stand where
            with open_verified(self.path) as master:
                self._refuse_another(self.path, master)
        for path in sorted(self.folder.glob("*.h5")):
            with open_hdf5(path) as shard:
                self._refuse_another(path, shard)
        for number in filter(self.done, range(self.n_shards)):
            self.files.open(number).close()

    def _refuse_another(self, path: Path, file: h5py.File) -> None:
        remedy = f"choose another run directory with --out, or delete {self.path.name} and {self.folder.name}"
        refuse_schema(path, file, remedy)
        if field := first_difference(read_identity(file), self.identity):
            raise UserError(f"{path} was made with another {field}; {remedy}")
