"""Identity of a store: the model, prompts and layout that all its files must agree on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import h5py

from extract.errors import UserError

SCHEMA = 2  # of master and shards; stores of another are refused
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
    tokens: str  # of every prompt as rendered, and of where its roles stand
    site: str
    layers: tuple[int, ...]
    positions: tuple[str, ...]
    dtype: StoreType
    backend: str
    rows_per_shard: int

    @property
    def text(self) -> str:
        """The identity as files hold it."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Identity:
        """Make an identity of the text that a file holds.

        Raises:
            ValueError: it has other fields, as those of other versions of this project do.
        """
        record = json.loads(text)
        if odd := set(record) ^ {field.name for field in fields(Identity)}:
            raise ValueError(f"identity with other fields: {', '.join(sorted(odd))}")
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
        return Identity(**given)


def first_difference(text: str, wanted: Identity) -> str | None:
    """Name the first field that the identity in a file does not share, with both values; None where they agree."""
    found = json.loads(text)
    for field, value in json.loads(wanted.text).items():
        if found.get(field) != value:
            return f"{field} ({found.get(field)!r}, now {value!r})"
    return None


def read_identity(file: h5py.File) -> str:
    """Return the text of a store's or shard's identity (of no fields, where it is neither)."""
    return _as_text(file.attrs.get("identity", "{}"))


def _as_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def refuse_schema(path: Path, file: h5py.File, remedy: str) -> None:
    """Refuse a store or shard laid out by another version of this project.

    Raises:
        UserError: its schema is not this one.
    """
    schema = int(file.attrs.get("schema", 1)) if "identity" in file.attrs else None
    if schema != SCHEMA:
        kind = (
            "is no activation store"
            if schema is None
            else f"is laid out in schema {schema}, this version's is {SCHEMA}"
        )
        raise UserError(f"{path} {kind}; {remedy}")
