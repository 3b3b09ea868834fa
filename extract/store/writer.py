"""Writes a store: the lock of one command, and the master file over finished shards.

The master is a virtual dataset over the shards, with the index of the prompts and the digests of all shards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields

import h5py
import numpy as np

from extract.atomic_write import atomic_file, make_folder
from extract.chat.render import Rendered
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.store.file_lock import shard_folder, store_lock
from extract.store.hdf5 import LIBVER, SEAL_SIZE, float_type, open_hdf5, open_sealed, seal, write_checked, write_ragged
from extract.store.identity import SCHEMA, Identity, first_difference, read_identity, refuse_schema
from extract.store.shards import ShardFiles, digest_of, responses_of

ROWS_AT_ONCE = 1024  # prompts per write


@contextmanager
def writing(files: ShardFiles, *, locked: bool = False) -> Iterator[ShardFiles]:
    """Prepare a store for shards that are written inside the block, and hold its lock.

    Args:
        locked: this process is a worker of the command that holds the lock; see `store_lock`.

    Raises:
        UserError: another command writes the store, or the path holds another or a damaged store or is unwritable.
    """
    make_folder(shard_folder(files.path))
    with nullcontext() if locked else store_lock(files.path):
        _refuse_another_store(files)
        if not locked:
            _remove_partial(files)
        yield files


def finish(
    files: ShardFiles, prompts: Sequence[Prompt], rendered: Sequence[Rendered], versions: dict[str, str]
) -> None:
    """Write the master over all shards and rename it into place; keep a master that already matches.

    Raises:
        UserError: a shard is missing, damaged or of another store, or the disk is full.
    """
    digests = []
    for shard in range(files.n_shards):
        with files.open(shard) as file:
            digests.append(digest_of(file))
    if not files.path.exists() or not _is_current(files, digests):
        _write_master(files, digests, prompts, rendered, versions)
    _remove_partial(files)  # of workers that were killed, or of two that wrote one shard


def _remove_partial(files: ShardFiles) -> None:
    folder = shard_folder(files.path)
    for file in [*folder.glob("*.partial"), *files.path.parent.glob(f"{files.path.name}.*.partial")]:
        file.unlink(missing_ok=True)


def _refuse_another_store(files: ShardFiles) -> None:
    """Refuse a path with another store or with shards of another store."""
    folder = shard_folder(files.path)
    remedy = f"choose another directory with --out, or delete {files.path.name} and {folder.name}"
    # also without its shards the master records an identity
    for path in [*([files.path] if files.path.exists() else []), *sorted(folder.glob("*.h5"))]:
        with open_sealed(path) if path == files.path else open_hdf5(path) as file:
            refuse_schema(path, file, remedy)
            if field := first_difference(read_identity(file), files.identity):
                raise UserError(f"{path} was made with another {field}; {remedy}")
    for shard in set(range(files.n_shards)) - set(files.missing()):
        files.open(shard).close()


def _is_current(files: ShardFiles, digests: Sequence[str]) -> bool:
    """Return whether a master holds just these shards, under this identity."""
    with open_sealed(files.path) as file:
        recorded = [digest.decode() for digest in file["shards/digest"][:]]
        return recorded == list(digests) and read_identity(file) == files.identity.text


def _write_master(
    files: ShardFiles,
    digests: Sequence[str],
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    versions: dict[str, str],
) -> None:
    identity = files.identity
    with atomic_file(files.path) as sink:
        with h5py.File(sink, "w", libver=LIBVER, userblock_size=SEAL_SIZE) as file:
            # HDF5 silently reads the fill value if a shard cannot be opened, so the fill value is NaN.
            file.create_virtual_dataset(f"activations/{identity.site}", _layout(files), fillvalue=np.nan)
            _write_index(file, identity, prompts, rendered)
            _collect(file, files)
            file.create_dataset("shards/digest", data=[d.encode() for d in digests], dtype="S64")
            file.attrs.update(
                schema=SCHEMA,
                identity=identity.text,
                versions=json.dumps(versions, sort_keys=True),
                digest=hashlib.sha256("".join(digests).encode()).hexdigest(),
                **{k: v for k, v in identity.to_dict().items() if isinstance(v, str | int)},
                complete=True,
            )
        sink.check()
        seal(sink)


def _layout(files: ShardFiles) -> h5py.VirtualLayout:
    kind = h5py.Datatype(float_type(files.identity.dtype))
    layout = h5py.VirtualLayout(files.shape, dtype=kind)
    for shard in range(files.n_shards):
        rows, shape = files.rows(shard), files.shape_of(shard)
        layout[:, :, rows.start : rows.stop] = h5py.VirtualSource(
            files.relative(shard), f"activations/{files.identity.site}", shape, dtype=kind
        )
    return layout


def _collect(file: h5py.File, files: ShardFiles) -> None:
    """Collect presence, responses and checksums from the shards."""
    present, responses, sums = [], [], []
    for shard in range(files.n_shards):
        with files.open(shard) as part:
            present.append(part["present"][:])
            responses += [row.tolist() for row in responses_of(part)]
            sums.append(part["crc32"][:])
    write_checked(file, "present", np.concatenate(present, axis=1))
    file.create_dataset("shards/crc32", data=np.stack(sums, axis=-1))
    if responses:
        write_ragged(file, "responses", responses)


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
