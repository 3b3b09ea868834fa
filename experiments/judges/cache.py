"""Judgements kept in an SQLite file as soon as they are made, so that no question is paid for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from pathlib import Path

from experiments.judges import Judgement
from extract.errors import UserError

_TABLE = "CREATE TABLE IF NOT EXISTS judgements (key TEXT PRIMARY KEY, action TEXT, evidence TEXT, fields TEXT)"


def cache_key(*parts: object) -> str:
    """Hash everything a judgement depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Cache:
    """A mapping from keys to judgements in a file, for several threads; each is on the disk before the next is asked.

    Raises:
        UserError: the file cannot be opened or written, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # every statement is a transaction of its own; another process may hold the file for a moment
            self._file = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._file.execute(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from None

    def get(self, key: str) -> Judgement | None:
        rows = self._run("SELECT action, evidence, fields FROM judgements WHERE key = ?", key)
        return Judgement(rows[0][0], rows[0][1], json.loads(rows[0][2])) if rows else None

    def put(self, key: str, judgement: Judgement) -> None:
        fields = json.dumps(dict(judgement.fields))
        self._run("INSERT OR REPLACE INTO judgements VALUES (?, ?, ?, ?)",
                  key, judgement.action, judgement.evidence, fields)  # fmt: skip

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _run(self, statement: str, *values: object) -> list[tuple]:
        try:
            with self._lock:
                return self._file.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> UserError:
        return UserError(f"cannot use {self.path} as the cache of judgements: {error}; nothing in it is lost; "
                         "free some space or set the permissions, or choose another file")  # fmt: skip
