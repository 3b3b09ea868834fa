"""The master file of a store: a virtual dataset over its shards, the index, and the digest of every shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np

from extract.atomic_write import atomic_file
from extract.chat.render import Rendered
from extract.prompts.prompt import Prompt
from extract.store.checksum_block import SEAL_SIZE, seal
from extract.store.hdf5 import LIBVER, float_type, open_sealed
from extract.store.identity import SCHEMA
from extract.store.index import write_index
from extract.store.ragged import joined, write_checked, write_ragged
from extract.store.shard_files import ShardFiles, responses_of


def write_master(
    files: ShardFiles,
    digests: Sequence[str],
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    versions: dict[str, str],
) -> None:
    """Write the master over finished shards and rename it into place."""
    with atomic_file(files.path) as sink:
        with h5py.File(sink, "w", libver=LIBVER, userblock_size=SEAL_SIZE) as file:
            # Where a source cannot be opened HDF5 reads the fill value without a word: let it be no number.
            file.create_virtual_dataset(f"activations/{files.identity.site}", _layout(files), fillvalue=np.nan)
            write_index(file, files.identity, prompts, rendered)
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
        block = seal(sink)
        sink.seek(0)
        sink.write(block)


def read_digests(path: Path) -> list[str]:
    """Return the digests of the shards a master was finished over."""
    with open_sealed(path) as file:
        return [digest.decode() for digest in file["shards/digest"][:]]


def _layout(files: ShardFiles) -> h5py.VirtualLayout:
    kind = h5py.Datatype(float_type(files.identity.dtype))
    layout = h5py.VirtualLayout(files.shape, dtype=kind)
    for shard, source in enumerate(files.relative):
        rows = files.rows(shard)
        part = h5py.VirtualSource(source, f"activations/{files.identity.site}", files.shape_of(shard), dtype=kind)
        layout[:, :, rows.start : rows.stop] = part
    return layout


def _gather(file: h5py.File, files: ShardFiles) -> None:
    """Put together what the shards know besides the numbers."""
    present, responses, sums = [], [], []
    for shard in range(files.n_shards):
        with files.open(shard) as part:
            present.append(part["present"][:])
            responses.append(responses_of(part))
            sums.append(part["crc32"][:])
    write_checked(file, "present", np.concatenate(present, axis=1))
    file.create_dataset("shards/crc32", data=np.stack(sums, axis=-1))
    if rows := joined(responses):
        write_ragged(file, "responses", [row.tolist() for row in rows])
