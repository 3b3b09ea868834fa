"""Shards of a store: paths, contents and digests.

A shard is an HDF5 file with `/activations/SITE`, `/present`, `/responses` and `/crc32` of its rows, laid out as in the
master, and as attributes the store's identity, its number and rows, and a SHA-256 over all of these.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from extract.atomic_write import atomic_file
from extract.errors import UserError
from extract.store import hdf5
from extract.store.file_lock import shard_folder
from extract.store.identity import SCHEMA, Identity, first_difference, read_identity


@dataclass(frozen=True)
class CapturedShard:
    """The content of one shard, on the CPU, and which rows have which position."""

    values: Float[Tensor, "layers positions rows d_model"]
    present: Bool[np.ndarray, "positions rows"]
    responses: tuple[tuple[int, ...], ...] = ()  # generated tokens of each row, if response positions are captured


@dataclass(frozen=True)
class ShardFiles:
    """The shards of a store at `path`."""

    path: Path
    identity: Identity
    n_prompts: int
    d_model: int

    @property
    def n_shards(self) -> int:
        return -(-self.n_prompts // self.identity.rows_per_shard)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the whole store."""
        return len(self.identity.layers), len(self.identity.positions), self.n_prompts, self.d_model

    def rows(self, shard: int) -> range:
        """Return the prompt rows of one shard."""
        per = self.identity.rows_per_shard
        return range(shard * per, min((shard + 1) * per, self.n_prompts))

    def shape_of(self, shard: int) -> tuple[int, int, int, int]:
        return *self.shape[:2], len(self.rows(shard)), self.d_model

    def file(self, shard: int) -> Path:
        return shard_folder(self.path) / f"{shard:05d}-of-{self.n_shards:05d}.h5"

    def relative(self, shard: int) -> str:
        return f"{shard_folder(self.path).name}/{self.file(shard).name}"

    def missing(self) -> list[int]:
        """Return the shards that are not finished; only finished ones have their final name."""
        return [shard for shard in range(self.n_shards) if not self.file(shard).exists()]

    def write(self, shard: int, captured: CapturedShard) -> None:
        """Write one shard, from any thread or worker; one that is there by then is kept. UserError if not finite."""
        self._check(shard, captured)
        with (
            atomic_file(self.file(shard), keep_first=True) as sink,
            h5py.File(sink, "w", libver=hdf5.LIBVER) as file,
            ThreadPoolExecutor(1) as hasher,
        ):
            digest = ShardDigest(self.identity, shard, self.rows(shard))
            hashing: list[Future[int]] = []
            shape = self.shape_of(shard)
            dataset = hdf5.create_loci(file, self.identity.site, shape, shape[2], self.identity.dtype)
            for layer, position in np.ndindex(shape[:2]):
                stored = self._stored(shard, captured, layer, position)
                hdf5.write_locus(dataset, layer, position, 0, stored)
                sink.check()
                wait(hashing[-1:])
                hashing.append(hasher.submit(digest.update, stored))  # while the next locus is written
            file.create_dataset("present", data=captured.present, fletcher32=True)
            hdf5.write_ragged(file, "responses", captured.responses)
            sums = np.array([hashed.result() for hashed in hashing], dtype=np.uint32).reshape(self.shape[:2])
            file.create_dataset("crc32", data=sums, fletcher32=True)
            # Fixed-length strings: HDF5 stores variable-length ones in a heap without a checksum.
            file.attrs.update(
                schema=SCHEMA,
                identity=np.bytes_(self.identity.text.encode()),
                shard=shard,
                rows=(self.rows(shard).start, self.rows(shard).stop),
                digest=np.bytes_(digest.finish(captured.present, captured.responses)),
            )

    def open(self, shard: int, digest: str | None = None) -> h5py.File:
        """Open a shard for reading; raises UserError if it is missing, damaged, changed, or of another store."""
        path = self.file(shard)
        if not path.is_file():
            raise UserError(
                f"{self.path} is incomplete: its shard {self.relative(shard)} is missing; run refusal extract again"
            )
        file = hdf5.open_hdf5(path)
        try:
            mismatch = self._mismatch(file, shard, digest)
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            mismatch = f"it cannot be read ({error})"
        if mismatch:
            file.close()
            raise UserError(
                f"{path} does not belong to {self.path}: {mismatch}; delete it and run refusal extract again"
            )
        return file

    def _mismatch(self, file: h5py.File, shard: int, digest: str | None) -> str | None:
        if "digest" not in file.attrs or int(file.attrs["schema"]) != SCHEMA:
            return f"it is not a shard of schema {SCHEMA}"
        if field := first_difference(read_identity(file), self.identity):
            return f"another {field}"
        if int(file.attrs["shard"]) != shard:
            return f"it is shard {int(file.attrs['shard'])}"
        dataset = file[f"activations/{self.identity.site}"]
        if dataset.shape != self.shape_of(shard) or file["present"].shape != dataset.shape[1:3]:
            return f"its shape is {dataset.shape}, not {self.shape_of(shard)}"
        if digest is not None and digest_of(file) != digest:
            return "its numbers have changed since the store was finished"
        return None

    def _check(self, shard: int, captured: CapturedShard) -> None:
        shape, responses = self.shape_of(shard), captured.responses
        if tuple(captured.values.shape) != shape or captured.present.shape != shape[1:3]:
            raise ValueError(
                f"shard {shard} has shape {shape}; got values {tuple(captured.values.shape)} with present "
                f"{captured.present.shape}"
            )
        if responses and len(responses) != shape[2]:
            raise ValueError(f"shard {shard} has {shape[2]} rows; got {len(responses)} responses")

    def _stored(self, shard: int, captured: CapturedShard, layer: int, position: int) -> hdf5.Rows:
        """Return one locus in the store's dtype; refuse values that are not finite."""
        stored = captured.values[layer, position].to(hdf5.TORCH_TYPES[self.identity.dtype]).contiguous()
        if not all(map(math.isfinite, torch.aminmax(stored))):  # one pass without a copy; NaN propagates
            row = int((~torch.isfinite(stored)).nonzero()[0, 0])
            raise UserError(
                f"{self.identity.model}: activation of prompt row {self.rows(shard)[row]} is not finite at layer "
                f"{self.identity.layers[layer]}, position {self.identity.positions[position]} in "
                f"{self.identity.dtype}; use --set extract.store_dtype=float32 or model.dtype=float32"
            )
        if stored[torch.from_numpy(~captured.present[position])].any():
            raise ValueError(f"shard {shard}: rows without {self.identity.positions[position]} must be zero")
        return stored


class ShardDigest:
    """A SHA-256 over a shard: the identity of its numbers, rows, every bit, presence and responses."""

    def __init__(self, identity: Identity, shard: int, rows: range) -> None:
        self._sha = hashlib.sha256(f"{identity.key} {shard} {rows.start} {rows.stop}".encode())

    def update(self, stored: hdf5.Rows) -> int:
        """Add the rows of one locus, in order of layers and positions; return their CRC-32."""
        self._sha.update(hdf5.bits(stored).data)
        return crc(stored)

    def finish(self, present: Bool[np.ndarray, "positions rows"], responses: Sequence[Any]) -> str:
        """Add presence and responses (rows of tokens); return the digest."""
        self._sha.update(np.asarray(present, dtype=np.uint8).tobytes())
        for row in responses:
            self._sha.update(f"{len(row)} ".encode() + np.asarray(row, dtype=np.int32).tobytes())
        return self._sha.hexdigest()


def crc(stored: hdf5.Rows) -> int:
    """Return the CRC-32 of a slice's bits; HDF5's own checksum is the same for bytes FF FF and 00 00."""
    return zlib.crc32(hdf5.bits(stored).data)


def digest_of(shard: h5py.File) -> str:
    """Return the digest recorded in a shard."""
    return bytes(shard.attrs["digest"]).decode()


def responses_of(file: h5py.File) -> list[Int[np.ndarray, " tokens"]]:
    """Return the generated tokens of each row of a store or shard; empty if none were captured."""
    return hdf5.read_ragged(file, "responses") if "responses" in file else []
