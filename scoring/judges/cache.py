"""The cache of an endpoint's judgements: a file, written after each judgement, so that no request is paid for twice."""

from __future__ import annotations

import json
from pathlib import Path

from extract.keyed_file import KeyedFile
from scoring.judges import Judgement


class Cache:
    """A thread-safe mapping from keys to judgements in a file; each judgement is on the disk before the next request.

    Raises:
        UserError: the file cannot be opened or written, or is not a cache of judgements.
    """

    def __init__(self, path: Path) -> None:
        remedy = "choose another file, or delete it to ask everything again"
        columns = ("action", "evidence", "fields")
        self._file = KeyedFile(path, "judgements", columns, purpose="the cache of judgements", remedy=remedy)

    def get(self, key: str) -> Judgement | None:
        found = self._file.get([key])
        if key not in found:
            return None
        action, evidence, fields = found[key]
        return Judgement(action, evidence, json.loads(fields))

    def put(self, key: str, judgement: Judgement) -> None:
        fields = json.dumps(dict(judgement.fields))
        self._file.put({key: (judgement.action, judgement.evidence, fields)})

    def close(self) -> None:
        self._file.close()
