"""What stands beside the numbers of a store: prompts by column, tokens and their roles, presence, responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import h5py
import numpy as np

from extract.chat.render import Rendered
from extract.prompts.prompt import Prompt
from extract.store.identity import Identity
from extract.store.ragged import write_checked, write_ragged

ROWS = 1024


def write_index(file: h5py.File, identity: Identity, prompts: Sequence[Prompt], rendered: Sequence[Rendered]) -> None:
    """Write /layers, /positions, /prompts, /tokens and /roles."""
    write_checked(file, "layers", np.array(identity.layers))
    file.create_dataset("positions", data=list(identity.positions), dtype=h5py.string_dtype())
    _write_prompts(file, prompts)
    write_ragged(file, "tokens", [row.token_ids for row in rendered])
    for name in identity.positions:
        if any(name in row.roles for row in rendered):  # positions of a response have no tokens among the prompt's
            write_ragged(file, f"roles/{name}", [row.roles.get(name, ()) for row in rendered])


def _write_prompts(file: h5py.File, prompts: Sequence[Prompt]) -> None:
    """Write a column a field, and whole records; some rows at a time, since texts are long and prompts many."""
    columns: dict[str, Callable[[Prompt], str]] = {
        field.name: lambda prompt, name=field.name: _cell(getattr(prompt, name))  # type: ignore[misc]
        for field in fields(Prompt)
    }
    columns["record"] = lambda prompt: json.dumps(asdict(prompt))
    for name, cell in columns.items():
        dataset = file.create_dataset(f"prompts/{name}", (len(prompts),), dtype=h5py.string_dtype())
        for start in range(0, len(prompts), ROWS):
            dataset[start : start + ROWS] = [cell(prompt) for prompt in prompts[start : start + ROWS]]


def _cell(value: object) -> str:
    """Return a field as text: nothing as the empty one, what is no text as JSON."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def read_prompts(file: h5py.File) -> list[Prompt] | None:
    """Return the prompts of a store; None where they have other fields than this version's."""
    try:
        return [
            Prompt(**{k: _frozen(v) for k, v in json.loads(record).items()}) for record in file["prompts/record"][:]
        ]
    except TypeError:
        return None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
