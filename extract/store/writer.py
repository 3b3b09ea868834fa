"""Writes a store: the lock of one command, the master file over finished shards, and one flat copy of all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np

from extract.atomic_write import DeferredErrorFile, atomic_file, make_folder
from extract.chat.render import Rendered
from extract.errors import UserError
from extract.prompts.prompt import FIELDS, Prompt
from extract.store import hdf5
from extract.store.activation_store import ActivationStore
from extract.store.file_lock import shard_folder, store_lock
from extract.store.identity import SCHEMA, Identity, first_difference, read_identity, refuse_schema
from extract.store.shards import ShardDigest, ShardFiles, digest_of, responses_of

Progress = Callable[[int, int], None]
ROWS_AT_ONCE = 1024  # prompts per write


@contextmanager
def writing(files: ShardFiles, *, locked: bool = False) -> Iterator[ShardFiles]:
    """Prepare a store for writing shards and hold its lock (unless `locked`, as a worker); else UserError."""
    make_folder(shard_folder(files.path))
    with nullcontext() if locked else store_lock(files.path):
        _refuse_another_store(files)
        if not locked:
            _remove_partial(files)
        yield files


def finish(
    files: ShardFiles, prompts: Sequence[Prompt], rendered: Sequence[Rendered], versions: dict[str, str]
) -> None:
    """Write the master over all shards, which must be there, and rename it into place; keep one that matches."""
    digests = []
    for shard in range(files.n_shards):
        with files.open(shard) as file:
            digests.append(digest_of(file))
    current = False
    if files.path.exists():
        with hdf5.open_sealed(files.path) as master:
            recorded = [digest.decode() for digest in master["shards/digest"][:]]
            current = recorded == digests and read_identity(master) == files.identity.text
    if not current:
        _write_master(files, digests, prompts, rendered, versions)
    _remove_partial(files)  # of workers that were killed, or of two that wrote one shard


def _remove_partial(files: ShardFiles) -> None:
    folder = shard_folder(files.path)
    for file in [*folder.glob("*.partial"), *files.path.parent.glob(f"{files.path.name}.*.partial")]:
        file.unlink(missing_ok=True)


def _refuse_another_store(files: ShardFiles) -> None:
    folder = shard_folder(files.path)
    remedy = f"choose another directory with --out, or delete {files.path.name} and {folder.name}"
    # also without its shards the master records an identity
    for path in [*([files.path] if files.path.exists() else []), *sorted(folder.glob("*.h5"))]:
        with hdf5.open_sealed(path) if path == files.path else hdf5.open_hdf5(path) as file:
            refuse_schema(path, file, remedy)
            if field := first_difference(read_identity(file), files.identity):
                raise UserError(f"{path} was made with another {field}; {remedy}")
    for shard in set(range(files.n_shards)) - set(files.missing()):
        files.open(shard).close()


def _write_master(
    files: ShardFiles,
    digests: Sequence[str],
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    versions: dict[str, str],
) -> None:
    identity = files.identity
    with atomic_file(files.path) as sink:
        with h5py.File(sink, "w", libver=hdf5.LIBVER, userblock_size=hdf5.SEAL_SIZE) as file:
            # HDF5 silently reads the fill value if a shard cannot be opened, so the fill value is NaN.
            kind, loci = h5py.Datatype(hdf5.float_type(identity.dtype)), f"activations/{identity.site}"
            layout = h5py.VirtualLayout(files.shape, dtype=kind)
            for shard in range(files.n_shards):
                rows, shape = files.rows(shard), files.shape_of(shard)
                source = h5py.VirtualSource(files.relative(shard), loci, shape, dtype=kind)
                layout[:, :, rows.start : rows.stop] = source
            file.create_virtual_dataset(loci, layout, fillvalue=np.nan)
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
        hdf5.seal(sink)


def _collect(file: h5py.File, files: ShardFiles) -> None:
    present, responses, sums = [], [], []
    for shard in range(files.n_shards):
        with files.open(shard) as part:
            present.append(part["present"][:])
            responses += [row.tolist() for row in responses_of(part)]
            sums.append(part["crc32"][:])
    hdf5.write_checked(file, "present", np.concatenate(present, axis=1))
    file.create_dataset("shards/crc32", data=np.stack(sums, axis=-1))
    if responses:
        hdf5.write_ragged(file, "responses", responses)


def _write_index(file: h5py.File, identity: Identity, prompts: Sequence[Prompt], rendered: Sequence[Rendered]) -> None:
    hdf5.write_checked(file, "layers", np.array(identity.layers))
    file.create_dataset("positions", data=list(identity.positions), dtype=h5py.string_dtype())
    _write_prompts(file, prompts)
    hdf5.write_ragged(file, "tokens", [row.token_ids for row in rendered])
    for name in identity.positions:
        if any(name in row.roles for row in rendered):  # response positions have no tokens in the prompt
            hdf5.write_ragged(file, f"roles/{name}", [row.roles.get(name, ()) for row in rendered])


def _write_prompts(file: h5py.File, prompts: Sequence[Prompt]) -> None:
    """Write one column per field and the whole records, a limited number of rows at a time to save memory."""
    for name in (*FIELDS, "record"):
        dataset = file.create_dataset(f"prompts/{name}", (len(prompts),), dtype=h5py.string_dtype())
        for start in range(0, len(prompts), ROWS_AT_ONCE):
            some = prompts[start : start + ROWS_AT_ONCE]
            values = [asdict(prompt) if name == "record" else getattr(prompt, name) for prompt in some]
            texts = [
                "" if value is None else value if isinstance(value, str) else json.dumps(value) for value in values
            ]
            dataset[start : start + ROWS_AT_ONCE] = texts


def export(path: Path, to: Path, *, progress: Progress = lambda done, total: None) -> None:
    """Copy a store into one flat file, one slice at a time, and verify its digests; an existing file is refused."""
    if to.exists():
        raise UserError(f"{to} exists already; choose another name, or delete it")
    if not to.parent.is_dir():
        raise UserError(f"cannot write {to}: there is no directory {to.parent}; create it, or choose another path")
    with ActivationStore(path) as store, atomic_file(to) as sink:
        with h5py.File(sink, "w", libver=hdf5.LIBVER, userblock_size=hdf5.SEAL_SIZE) as file:
            loci = _copy_loci(store, file, sink, progress)
            file.flush()
            chunks: list[range] = []
            loci.id.chunk_iter(lambda chunk: chunks.append(range(chunk.byte_offset, chunk.byte_offset + chunk.size)))
            for name in store.file:
                if name != "activations":
                    store.file.copy(name, file)
            file.attrs.update(store.file.attrs)
        # From the first chunk to the last HDF5 verifies what it reads: between them is only its own, checksummed, data.
        hdf5.seal(sink, range(min(chunk.start for chunk in chunks), max(chunk.stop for chunk in chunks)))


def _copy_loci(store: ActivationStore, file: h5py.File, sink: DeferredErrorFile, progress: Progress) -> h5py.Dataset:
    files, identity = store.files, store.identity
    rows = min(identity.rows_per_shard, files.n_prompts)  # one chunk per shard, so that digests stay the same
    dataset = hdf5.create_loci(file, identity.site, files.shape, rows, identity.dtype)
    digests = [ShardDigest(identity, shard, files.rows(shard)) for shard in range(files.n_shards)]
    for done, (layer, position) in enumerate(np.ndindex(files.shape[:2]), start=1):
        locus = store.read_tensor(identity.layers[layer], identity.positions[position])
        for shard, digest in enumerate(digests):
            part = files.rows(shard)
            digest.update(locus[part.start : part.stop])
        hdf5.write_locus(dataset, layer, position, 0, locus)
        sink.check()
        progress(done, files.shape[0] * files.shape[1])
    responses = store.responses
    for shard, digest in enumerate(digests):
        part = files.rows(shard)
        here = slice(part.start, part.stop)
        if digest.finish(store.present[:, here], responses[here]) != store.digests[shard]:
            raise UserError(
                f"{store.path} is damaged: rows {part.start} to {part.stop - 1} do not match their digest; "
                "see: refusal store verify"
            )
    return dataset
