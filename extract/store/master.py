"""Master file of a store: a virtual dataset over its shards, the index of its prompts, the digests of all shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from extract.atomic_write import atomic_file
from extract.chat.render import Rendered
from extract.prompts.prompt import Prompt
from extract.store.checksum_block import BLOCK_SIZE, checksum_block
from extract.store.hdf5 import LIBVER, float_type, open_verified, write_checked, write_ragged
from extract.store.identity import SCHEMA, Identity, read_identity
from extract.store.shard_files import ShardFiles, responses_of

ROWS_AT_ONCE = 1024  # prompts per write
SHARD_IDENTITIES = "shards/identity"  # only where they differ from the master's


def write_master(
    files: ShardFiles,
    digests: Sequence[str],
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    versions: dict[str, str],
) -> None:
    """Write the master over finished shards and rename it into place."""
    with atomic_file(files.path) as sink:
        with h5py.File(sink, "w", libver=LIBVER, userblock_size=BLOCK_SIZE) as file:
            # HDF5 silently reads the fill value if a shard cannot be opened, so the fill value is NaN.
            file.create_virtual_dataset(f"activations/{files.identity.site}", _layout(files), fillvalue=np.nan)
            _write_index(file, files.identity, prompts, rendered)
            _gather(file, files)
            file.create_dataset("shards/digest", data=[d.encode() for d in digests], dtype="S64")
            file.attrs.update(
                schema=SCHEMA,
                identity=files.identity.text,
                versions=json.dumps(versions, sort_keys=True),
                digest=hashlib.sha256("".join(digests).encode()).hexdigest(),
                **{k: v for k, v in asdict(files.identity).items() if isinstance(v, str | int)},
                complete=True,
            )
        sink.check()
        block = checksum_block(sink)
        sink.seek(0)
        sink.write(block)


def is_current(path: Path, identity: Identity, digests: Sequence[str]) -> bool:
    """Return whether a master holds just these shards, under this identity."""
    with open_verified(path) as file:
        found = [digest.decode() for digest in file["shards/digest"][:]]
        return found == list(digests) and read_identity(file) == identity.text


def shard_identities(file: h5py.File, identity: Identity, n_shards: int) -> list[str]:
    """Return the identity text that each shard was written with, which its digest begins with."""
    if SHARD_IDENTITIES not in file:
        return [identity.text] * n_shards
    return [bytes(text).decode() for text in file[SHARD_IDENTITIES][:]]


def read_prompts(file: h5py.File) -> list[Prompt] | None:
    """Return the prompts of a store; None if their fields differ from this version's."""
    try:
        return [
            Prompt(**{k: _frozen(v) for k, v in json.loads(record).items()}) for record in file["prompts/record"][:]
        ]
    except TypeError:
        return None


def _layout(files: ShardFiles) -> h5py.VirtualLayout:
    kind = h5py.Datatype(float_type(files.identity.dtype))
    layout = h5py.VirtualLayout(files.shape, dtype=kind)
    for shard, source in enumerate(files.relative):
        rows = files.rows(shard)
        part = h5py.VirtualSource(source, f"activations/{files.identity.site}", files.shape_of(shard), dtype=kind)
        layout[:, :, rows.start : rows.stop] = part
    return layout


def _gather(file: h5py.File, files: ShardFiles) -> None:
    """Collect presence, responses and checksums from the shards."""
    present, responses, sums, identities = [], [], [], []
    for shard in range(files.n_shards):
        with files.open(shard) as part:
            present.append(part["present"][:])
            responses.append(responses_of(part))
            sums.append(part["crc32"][:])
            identities.append(read_identity(part))
    write_checked(file, "present", np.concatenate(present, axis=1))
    file.create_dataset("shards/crc32", data=np.stack(sums, axis=-1))
    if set(identities) != {files.identity.text}:  # the model was called otherwise, or prompts had other labels
        file.create_dataset(SHARD_IDENTITIES, data=[np.bytes_(text.encode()) for text in identities])
    if rows := [row.tolist() for part in responses for row in part]:
        write_ragged(file, "responses", rows)


def _write_index(file: h5py.File, identity: Identity, prompts: Sequence[Prompt], rendered: Sequence[Rendered]) -> None:
    """Write /layers, /positions, /prompts, /tokens and /roles."""
    write_checked(file, "layers", np.array(identity.layers))
    file.create_dataset("positions", data=list(identity.positions), dtype=h5py.string_dtype())
    _write_prompts(file, prompts)
    write_ragged(file, "tokens", [row.token_ids for row in rendered])
    for name in identity.positions:
        if any(name in row.roles for row in rendered):  # response positions have no tokens in the prompt
            write_ragged(file, f"roles/{name}", [row.roles.get(name, ()) for row in rendered])


def _write_prompts(file: h5py.File, prompts: Sequence[Prompt]) -> None:
    """Write one column per field and the whole records, a limited number of rows at a time to save memory."""
    columns: dict[str, Callable[[Prompt], str]] = {
        field.name: lambda prompt, name=field.name: _as_text(getattr(prompt, name))  # type: ignore[misc]
        for field in fields(Prompt)
    }
    columns["record"] = lambda prompt: json.dumps(asdict(prompt))
    for name, text in columns.items():
        dataset = file.create_dataset(f"prompts/{name}", (len(prompts),), dtype=h5py.string_dtype())
        for start in range(0, len(prompts), ROWS_AT_ONCE):
            dataset[start : start + ROWS_AT_ONCE] = [text(prompt) for prompt in prompts[start : start + ROWS_AT_ONCE]]


def _as_text(value: object) -> str:
    """Return a field as text: None as an empty string, other non-text values as JSON."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
