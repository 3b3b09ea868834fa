"""Key-value rows in an SQLite file, safe for several threads and processes."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from extract.errors import UserError


def content_key(*parts: object) -> str:
    """Return a SHA-256 key of everything that a stored value depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def file_hash(path: Path) -> str | None:
    """Return the SHA-256 of a file, or None if there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class KeyedFile:
    """A mapping from keys to rows of one table. `put` is atomic and returns when the rows are on disk.

    Each call waits while another process holds the file. No write-ahead log: it fails on network file systems.
    Raises UserError, with `purpose` and `remedy`, where the file is damaged, of another kind, or cannot be written.
    """

    def __init__(self, path: Path, table: str, columns: Sequence[str], *, purpose: str, remedy: str) -> None:
        self.path, self._purpose, self._remedy = path, purpose, remedy
        self._lock = threading.Lock()
        self._find = f"SELECT {', '.join(columns)} FROM {table} WHERE key = ?"
        self._put = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * (len(columns) + 1))})"
        shape = f"{table} (key TEXT PRIMARY KEY, {', '.join(f'{column} TEXT' for column in columns)})"
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        named = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        with self._transaction("BEGIN"):
            tables = [sql for (sql,) in self._file.execute(named)]
        if not tables:
            with self._transaction("BEGIN IMMEDIATE"):
                self._file.execute(f"CREATE TABLE IF NOT EXISTS {shape}")
        elif tables != [f"CREATE TABLE {shape}"]:
            self.close()
            raise self.damaged("it is another kind of database")

    def get(self, keys: Iterable[str]) -> dict[str, tuple[Any, ...]]:
        """Return the rows of the given keys; keys without a row are left out."""
        with self._transaction("BEGIN"):
            rows = {key: self._file.execute(self._find, (key,)).fetchone() for key in keys}
        return {key: row for key, row in rows.items() if row is not None}

    def put(self, rows: Mapping[str, Sequence[object]]) -> None:
        with self._transaction("BEGIN IMMEDIATE"):
            self._file.executemany(self._put, [(key, *row) for key, row in rows.items()])

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def damaged(self, how: object) -> UserError:
        """Return the error to raise if the file does not hold the expected content."""
        return UserError(f"cannot use {self.path} as {self._purpose}: {how}; {self._remedy}")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with self._explained(), self._lock, self._file:
            self._file.execute(begin)
            yield

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:  # the file is fine; disk or permissions are not
            remedy = "nothing in it is lost; free disk space or set the permissions"
            raise UserError(f"cannot use {self.path} as {self._purpose}: {error}; {remedy}") from None
        except sqlite3.Error as error:
            raise self.damaged(error) from None
