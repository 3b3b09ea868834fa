"""Identity of a store: the model, prompts and layout, the same in all its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import h5py

from extract.errors import UserError
from extract.record import Record

SCHEMA = 3  # layout version of master and shards; stores of other versions are refused
StoreType = Literal["float32", "float16", "bfloat16"]
MAKE = "stores are made by: refusal extract CONFIG --out DIR"
KEY = ("weights", "template", "tokens", "site", "layers", "positions", "dtype", "backend", "rows_per_shard")


class Identity(Record):
    """Model, prompts and layout of a store; the fields of `KEY` determine its numbers, others their origin."""

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
        return json.dumps(self.to_dict(), sort_keys=True)

    @property
    def key(self) -> str:
        """The fields of `KEY` as JSON text, which the digests of the numbers begin with."""
        return json.dumps([getattr(self, name) for name in KEY])


def first_difference(text: str, wanted: Identity) -> str | None:
    """Return the first field of the key in which a file's identity differs, with both values; None if none does."""
    stored, here = json.loads(text), json.loads(wanted.text)
    for field in KEY:
        if stored.get(field) != (value := here[field]):
            return f"{field} ({stored.get(field)!r}, now {value!r})"
    return None


def read_identity(file: h5py.File) -> str:
    """Return the identity text of a store or shard; one without fields for other files."""
    text = file.attrs.get("identity", "{}")
    return text.decode() if isinstance(text, bytes) else str(text)


def has_its_shards(path: Path) -> bool:
    """Return whether every shard of a master file has the recorded digest; True for other files; without torch."""
    try:
        with h5py.File(path, "r") as master:
            data = next(iter(master["activations"].values()))
            sources = data.virtual_sources() if data.is_virtual else []
            names = sorted(source.file_name for source in sources)  # they are numbered
            digests = master["shards/digest"][: len(names)].tolist()
    except (OSError, KeyError):
        return True
    return [_recorded_digest(path.parent / name) for name in names] == digests


def _recorded_digest(shard: Path) -> bytes | None:
    try:
        with h5py.File(shard, "r") as file:
            return bytes(file.attrs["digest"])
    except (OSError, KeyError):
        return None


def refuse_schema(path: Path, file: h5py.File, remedy: str) -> None:
    """Refuse a store or shard of another schema; raises UserError if the file has another schema, or is not a store."""
    if "identity" not in file.attrs:  # another program's file, which is not ours to delete
        raise UserError(f"{path} is not an activation store, but another HDF5 file; {MAKE}")
    if (schema := int(file.attrs.get("schema", 1))) != SCHEMA:
        raise UserError(f"{path} has schema {schema}, this version reads schema {SCHEMA}; {remedy}")
