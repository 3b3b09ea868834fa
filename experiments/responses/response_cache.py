"""Cache of a model's responses, keyed by content: a run with one more control generates only that control's responses.

The key holds everything that a response depends on. No response under an edit without a key is written or read. Known
limit: another batch changes floating-point sums, and so, rarely, a token with an equally likely rival.
"""

from __future__ import annotations

import importlib.metadata
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extract.keyed_file import KeyedFile, content_key
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.model.weights import checksum

_COMPUTES = ("refusal-probes", "torch", "transformers")
_NAMES = ("_name_or_path", "transformers_version")  # of a configuration: its path and the version that wrote it


class ResponseCache:
    """Responses of one model in an SQLite file, shared by several processes; each batch is written atomically.

    All weights are read once, for their checksum; they must not change while the cache is in use. UserError: the file
    cannot be opened or written, is damaged, or is no such cache.
    """

    def __init__(self, path: Path, model: ChatModel) -> None:
        remedy = "delete it and run again (its responses are generated again)"
        purpose = "the cache of the model's responses"
        self._file = KeyedFile(path, "generations", ("tokens", "checksum"), purpose=purpose, remedy=remedy)
        self._model = _described(model)

    def for_edits(
        self, edits: Sequence[Edit], max_new_tokens: int, extra: Sequence[object] = ()
    ) -> CachedResponses | None:
        """Return the cached responses under edits and what else they depend on; None if an edit has no key."""
        if not all(edit.key for edit in edits):
            return None
        named = [(edit.site, edit.layer, edit.key) for edit in edits]
        return CachedResponses(
            self._file, content_key(self._model, max_new_tokens, named, *([list(extra)] if extra else []))
        )


@dataclass(frozen=True)
class CachedResponses:
    """Responses of one model under given edits, by prompt: token ids of greedy ones, JSON lists of sampled ones."""

    file: KeyedFile
    setting: str

    def find(self, prompts: Sequence[Sequence[int]]) -> list[list[Any] | None]:
        """Return the response to each prompt, None if it is not cached."""
        keys = [self._key(prompt) for prompt in prompts]
        rows = self.file.get(keys)
        return [self._read(key, *rows[key]) if key in rows else None for key in keys]

    def store(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[Any]]) -> None:
        """Write responses to the file in one transaction: all of them or none."""
        rows = {}
        for prompt, response in zip(prompts, responses, strict=True):
            key, text = self._key(prompt), json.dumps(list(response))
            rows[key] = (text, _checksum(key, text))
        self.file.put(rows)

    def _key(self, prompt: Sequence[int]) -> str:
        return content_key(self.setting, list(prompt))

    def _read(self, key: str, text: str, checksum: str) -> list[Any]:
        if checksum != _checksum(key, text):
            raise self.file.damaged("a response in it does not match its checksum")
        response: list[Any] = json.loads(text)
        return response


def _checksum(key: str, text: str) -> str:
    """Return a CRC-32 of key and text, because SQLite does not detect a flipped bit."""
    return f"{zlib.crc32(f'{key} {text}'.encode()):08x}"


def _described(model: ChatModel) -> dict[str, object]:
    configuration = json.loads(model.model.config.to_json_string(use_diff=False))
    return {
        "weights": [model.fingerprint(), checksum(model.model)],
        "configuration": {name: value for name, value in configuration.items() if name not in _NAMES},
        "dtype": str(model.dtype),
        "device": model.device.type,
        "backend": model.backend,
        "ends": model.eos_ids,
        "versions": {name: importlib.metadata.version(name) for name in _COMPUTES},
    }
