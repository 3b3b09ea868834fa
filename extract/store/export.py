"""Exports a store to one flat HDF5 file: the same layout, without shards."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import h5py

from extract.atomic_write import DeferredErrorFile, atomic_file
from extract.errors import UserError
from extract.store.activation_store import ActivationStore
from extract.store.checksum_block import BLOCK_SIZE, checksum_block
from extract.store.hdf5 import LIBVER, create_loci, write_locus
from extract.store.shard_files import ShardDigest

RUNS = 8  # byte ranges that fit into a checksum block; HDF5 puts its own, checksummed metadata between chunks
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
        with h5py.File(sink, "w", libver=LIBVER, userblock_size=BLOCK_SIZE) as file:
            loci = _copy_loci(store, file, sink, progress)
            store.copy_index(file)
            file.flush()
            unread = _extents(loci)
        _close(sink, unread)


def _copy_loci(store: ActivationStore, file: h5py.File, sink: DeferredErrorFile, progress: Progress) -> h5py.Dataset:
    files, identity = store.files, store.identity
    rows = min(identity.rows_per_shard, files.n_prompts)  # one chunk per shard, so that digests stay the same
    dataset = create_loci(file, identity.site, files.shape, rows, identity.dtype)
    digests = [ShardDigest(text, shard, files.rows(shard)) for shard, text in enumerate(store.shard_identities)]
    total = files.shape[0] * files.shape[1]
    for layer, number in enumerate(identity.layers):
        for position, name in enumerate(identity.positions):
            locus = store.read_tensor(number, name)
            for shard, digest in enumerate(digests):
                part = files.rows(shard)
                digest.update(locus[part.start : part.stop])
            write_locus(dataset, layer, position, 0, locus)
            sink.check()
            progress(layer * len(identity.positions) + position + 1, total)
    _compare(store, digests)
    return dataset


def _compare(store: ActivationStore, digests: list[ShardDigest]) -> None:
    responses = store.responses
    for shard, digest in enumerate(digests):
        rows = store.files.rows(shard)
        here = slice(rows.start, rows.stop)
        if digest.finish(store.present[:, here], responses[here]) != store.digests[shard]:
            raise UserError(
                f"{store.path} is damaged: rows {rows.start} to {rows.stop - 1} do not match their digest; "
                "see: refusal store verify"
            )


def _extents(loci: h5py.Dataset) -> list[range]:
    """Return the byte ranges of a dataset's chunks, merged to at most RUNS ranges over the narrowest gaps."""
    chunks: list[range] = []
    loci.id.chunk_iter(lambda chunk: chunks.append(range(chunk.byte_offset, chunk.byte_offset + chunk.size)))
    chunks.sort(key=lambda chunk: chunk.start)
    gaps = sorted(pairwise(chunks), key=lambda two: two[0].stop - two[1].start)[: RUNS - 1]
    cuts = sorted((before.stop, after.start) for before, after in gaps if before.stop < after.start)
    starts, stops = [chunks[0].start, *(b for _, b in cuts)], [*(a for a, _ in cuts), chunks[-1].stop]
    return [range(start, stop) for start, stop in zip(starts, stops, strict=True)]


def _close(sink: DeferredErrorFile, unread: list[range]) -> None:
    block = checksum_block(sink, unread)
    sink.seek(0)
    sink.write(block)
