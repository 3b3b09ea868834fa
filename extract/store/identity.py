"""Identity of a store: the model, prompts and layout, the same in all its files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import h5py

from extract.errors import UserError

SCHEMA = 2  # layout version of master and shards; stores of other versions are refused
StoreType = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class Identity:
    """Model, prompts and layout of a store. Two stores with equal identities hold the same numbers."""

    model: str
    revision: str
    weights: str
    tokenizer: str
    template: str
    prompts: str
    tokens: str  # SHA-256 of every rendered prompt's tokens and roles
    site: str
    layers: tuple[int, ...]
    positions: tuple[str, ...]
    dtype: StoreType
    backend: str
    rows_per_shard: int

    @property
    def text(self) -> str:
        """The identity as JSON text, as it is stored in files."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Identity:
        """Parse an identity from its JSON text.

        Raises:
            ValueError: the text has other fields, for example from another version of this project.
        """
        record = json.loads(text)
        if odd := set(record) ^ {field.name for field in fields(Identity)}:
            raise ValueError(f"identity with other fields: {', '.join(sorted(odd))}")
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
        return Identity(**given)


def first_difference(text: str, wanted: Identity) -> str | None:
    """Return the first field in which a file's identity differs, with both values; None if they are equal."""
    found = json.loads(text)
    for field, value in json.loads(wanted.text).items():
        if found.get(field) != value:
            return f"{field} ({found.get(field)!r}, now {value!r})"
    return None


def read_identity(file: h5py.File) -> str:
    """Return the identity text of a store or shard; an identity without fields for other files."""
    return _as_text(file.attrs.get("identity", "{}"))


def _as_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def refuse_schema(path: Path, file: h5py.File, remedy: str) -> None:
    """Refuse a store or shard of another schema.

    Raises:
        UserError: the file has another schema, or is not a store.
    """
    schema = int(file.attrs.get("schema", 1)) if "identity" in file.attrs else None
    if schema != SCHEMA:
        kind = (
            "is not an activation store"
            if schema is None
            else f"has schema {schema}, this version reads schema {SCHEMA}"
        )
        raise UserError(f"{path} {kind}; {remedy}")
