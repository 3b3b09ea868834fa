"""Exports a store to one flat HDF5 file: the same layout, without shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from extract.atomic_write import DeferredErrorFile, atomic_file
from extract.errors import UserError
from extract.store.activation_store import ActivationStore
from extract.store.hdf5 import LIBVER, SEAL_SIZE, create_loci, seal, write_locus
from extract.store.shards import ShardDigest

Progress = Callable[[int, int], None]


def export(path: Path, to: Path, *, progress: Progress = lambda done, total: None) -> None:
    """Copy a store into one flat file, one slice at a time, and verify its digests.

    Raises:
        UserError: the store is damaged, or the target exists or cannot be written.
    """
    if to.exists():
        raise UserError(f"{to} exists already; choose another name, or delete it")
    if not to.parent.is_dir():
        raise UserError(f"cannot write {to}: there is no directory {to.parent}; create it, or choose another path")
    with ActivationStore(path) as store, atomic_file(to) as sink:
        with h5py.File(sink, "w", libver=LIBVER, userblock_size=SEAL_SIZE) as file:
            loci = _copy_loci(store, file, sink, progress)
            file.flush()
            unread = _extent(loci)
            store.copy_index(file)
        seal(sink, unread)


def _copy_loci(store: ActivationStore, file: h5py.File, sink: DeferredErrorFile, progress: Progress) -> h5py.Dataset:
    files, identity = store.files, store.identity
    rows = min(identity.rows_per_shard, files.n_prompts)  # one chunk per shard, so that digests stay the same
    dataset = create_loci(file, identity.site, files.shape, rows, identity.dtype)
    digests = [ShardDigest(identity, shard, files.rows(shard)) for shard in range(files.n_shards)]
    for done, (layer, position) in enumerate(np.ndindex(files.shape[:2]), start=1):
        locus = store.read_tensor(identity.layers[layer], identity.positions[position])
        for shard, digest in enumerate(digests):
            part = files.rows(shard)
            digest.update(locus[part.start : part.stop])
        write_locus(dataset, layer, position, 0, locus)
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


def _extent(loci: h5py.Dataset) -> range:
    """Return the bytes from a dataset's first chunk to its last; HDF5 puts its own, checksummed metadata between."""
    chunks: list[range] = []
    loci.id.chunk_iter(lambda chunk: chunks.append(range(chunk.byte_offset, chunk.byte_offset + chunk.size)))
    return range(min(chunk.start for chunk in chunks), max(chunk.stop for chunk in chunks))
