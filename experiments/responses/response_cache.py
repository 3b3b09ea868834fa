"""Cache of a model's responses, by content: a run with one more control generates only what that control adds.

A response is known by all that it follows from: weights, configuration, dtype, kind of device, backend, end tokens, the
versions of what computes, the prompt's tokens, how many tokens may follow, and the edits in order, each by its site,
layer and key. What an edit without a key does is not known, so no response under one is ever written or read.

Known limit: how prompts are batched changes floating-point sums a little, and with them, rarely, a token whose rival
was as likely. A remembered response is one that the model gave in some batch; in another it could differ so.
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
from extract.model.fingerprint import checksum

_COMPUTES = ("refusal-probes", "torch", "transformers")
_NAMES = ("_name_or_path", "transformers_version")  # of a configuration: where it lay and who wrote it


class ResponseCache:
    """Responses of one model in a file, for several processes; one batch at a time is written, whole or not at all.

    The weights are looked at here, once, every one of them: they must not change while this is in use.

    Raises:
        UserError: the file cannot be opened or written, is damaged, or is something else.
    """

    def __init__(self, path: Path, model: ChatModel) -> None:
        remedy = "delete it and run again (what it held is generated anew)"
        purpose = "the memory of what the model said"
        self._file = KeyedFile(path, "generations", ("tokens", "checksum"), purpose=purpose, remedy=remedy)
        self._model = _described(model)

    def for_edits(
        self, edits: Sequence[Edit], max_new_tokens: int, besides: Sequence[object] = ()
    ) -> CachedResponses | None:
        """Return what is remembered under these edits; None where one of them has no key, so nothing may be.

        Args:
            besides: all else that a response follows from: what biases its tokens, the random numbers of a sampled one.
        """
        if not all(edit.key for edit in edits):
            return None
        named = [(edit.site, edit.layer, edit.key) for edit in edits]
        return CachedResponses(
            self._file, content_key(self._model, max_new_tokens, named, *([list(besides)] if besides else []))
        )


@dataclass(frozen=True)
class CachedResponses:
    """Responses of one model under given edits, by prompt: greedy ones are tokens, sampled ones more than that."""

    file: KeyedFile
    setting: str

    def find(self, prompts: Sequence[Sequence[int]]) -> list[list[Any] | None]:
        """Return the response to each prompt, None where it is not known."""
        keys = [self._key(prompt) for prompt in prompts]
        found = self.file.get(keys)
        return [self._read(key, *found[key]) if key in found else None for key in keys]

    def store(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[Any]]) -> None:
        """Put responses on the disk, all of them or none."""
        rows = {}
        for prompt, response in zip(prompts, responses, strict=True):
            key, text = self._key(prompt), json.dumps(list(response))
            rows[key] = (text, _checksum(key, text))
        self.file.put(rows)

    def _key(self, prompt: Sequence[int]) -> str:
        return content_key(self.setting, list(prompt))

    def _read(self, key: str, text: str, checksum: str) -> list[Any]:
        if checksum != _checksum(key, text):
            raise self.file.damaged("a response in it is not the one that was put there")
        response: list[Any] = json.loads(text)
        return response


def _checksum(key: str, text: str) -> str:
    """SQLite itself does not notice a flipped bit."""
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
