"""HDF5 access of stores: sealed files, reading and writing loci without conversion, and ragged integer rows.

The seal of a finished file is its first 512 bytes, HDF5's user block: its length and the SHA-256 of the rest. HDF5 has
no checksums of an index's heaps, where one changed byte may crash it, so the seal is verified before it reads them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from extract.atomic_write import DeferredErrorFile
from extract.errors import UserError
from extract.store.identity import MAKE, StoreType, refuse_schema

Rows = Float[Tensor, "rows d_model"]  # activations of one locus: a layer and a position
SEAL_SIZE = 512  # the smallest user block of HDF5
SIGNATURE = b"\x89HDF\r\n\x1a\n"
BEGINS = b"refusal-probes store of "
SEAL = re.compile(BEGINS + rb"(\d+) bytes\nwithout (\d+)-(\d+)\nsha256 of the rest: [0-9a-f]{64}\n")
NO_BYTES = range(SEAL_SIZE, SEAL_SIZE)
STEP = 1 << 22
LIBVER = ("v110", "v110")  # the first version with metadata checksums; HDF5 1.10 and later can read it
TORCH_TYPES: dict[StoreType, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def open_hdf5(path: Path) -> h5py.File:
    """Open an HDF5 file for reading; raises UserError if the file is missing, cut short, or not HDF5."""
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise UserError(f"store not found: {path}; make it with: refusal extract CONFIG") from None
    except OSError as error:
        raise UserError(
            f"{path} is not a readable HDF5 file (cut short?): {error}; delete it and run refusal extract again"
        ) from None


# -- the seal ----------------------------------------------------------------------------------------------------------


class DamagedStoreError(UserError):
    """A store whose bytes have changed since it was finished."""


def seal(file: BinaryIO | DeferredErrorFile, unread: range = NO_BYTES) -> None:
    """Seal a finished file, over all but the bytes `unread`, which HDF5 verifies on reading."""
    block = _seal(file, unread)
    file.seek(0)
    file.write(block)


def open_sealed(path: Path) -> h5py.File:
    """Open a master or flat file after its seal is verified; DamagedStoreError if it changed since it was finished."""
    if not path.exists():
        raise UserError(f"store not found: {path}; make it with: refusal extract CONFIG")
    if path.is_dir():
        raise UserError(f"{path} is a directory, not a store; {MAKE}")
    with path.open("rb") as file:
        fault = _fault(file)
        file.seek(0)
        head = file.read(SEAL_SIZE + len(SIGNATURE))
    if fault is None:
        return open_hdf5(path)
    if head.startswith(SIGNATURE):  # of an earlier schema, or from another program
        with open_hdf5(path) as other:
            refuse_schema(path, other, "delete it with its shards and run refusal extract again")
    elif not head.startswith(BEGINS) and head[SEAL_SIZE:] != SIGNATURE:
        raise UserError(f"{path} is no HDF5 store; {MAKE}")
    raise DamagedStoreError(f"{path} {fault}; delete it and run refusal extract again (finished shards are kept)")


def _fault(file: BinaryIO) -> str | None:
    """Return what is wrong with a file by its seal; None if it is unchanged."""
    block = file.read(SEAL_SIZE)
    form = SEAL.match(block)
    if form is None:
        return "is not a readable HDF5 file (cut short?) with the seal of a finished store"
    size, start, stop = map(int, form.groups()[:3])
    if (actual := file.seek(0, 2)) != size:
        return f"is not a readable HDF5 file (cut short?): it has {actual} bytes, not {size}"
    if not SEAL_SIZE <= start <= stop <= size or block != _seal(file, range(start, stop)):
        return "is damaged: its bytes have changed since it was finished"
    return None


def _seal(file: BinaryIO | DeferredErrorFile, unread: range) -> bytes:
    size, digest = file.seek(0, 2), hashlib.sha256()
    for start, stop in ((SEAL_SIZE, unread.start), (unread.stop, size)):
        file.seek(start)
        for at in range(start, stop, STEP):
            digest.update(file.read(min(STEP, stop - at)))
    text = f"{size} bytes\nwithout {unread.start}-{unread.stop}\nsha256 of the rest: {digest.hexdigest()}\n"
    return (BEGINS + text.encode()).ljust(SEAL_SIZE, b"\0")


# -- numbers -----------------------------------------------------------------------------------------------------------


def float_type(dtype: StoreType) -> h5py.h5t.TypeFloatID:
    """Return the HDF5 type for a dtype, the same on disk and in memory."""
    if dtype != "bfloat16":
        return h5py.h5t.IEEE_F32LE if dtype == "float32" else h5py.h5t.IEEE_F16LE
    kind = h5py.h5t.IEEE_F32LE.copy()  # sign at bit 15, exponent 7..14 with bias 127, mantissa 0..6
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_precision(16)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def create_loci(
    file: h5py.File, site: str, shape: tuple[int, int, int, int], rows: int, dtype: StoreType
) -> h5py.Dataset:
    """Create /activations/SITE with one checksummed chunk per (layer, position) and `rows` prompts."""
    return file.create_dataset(
        f"activations/{site}",
        shape,
        dtype=h5py.Datatype(float_type(dtype)),
        chunks=(1, 1, rows, shape[3]),
        fletcher32=True,
        fillvalue=np.nan,  # unwritten values must not look like numbers
    )


def write_locus(dataset: h5py.Dataset, layer: int, position: int, start: int, stored: Rows) -> None:
    """Write rows of one locus from row `start`; `stored` is contiguous and has the dataset's dtype."""
    memory, place = _spaces(tuple(stored.shape), layer, position, start, tuple(dataset.shape))
    dataset.id.write(memory, place, bits(stored), mtype=_float_type_of(stored.dtype))


def read_locus(dataset: h5py.Dataset, layer: int, position: int, start: int, into: Rows) -> None:
    """Read rows of one locus from row `start` into a contiguous tensor of the dataset's dtype; OSError if damaged."""
    memory, place = _spaces(tuple(into.shape), layer, position, start, tuple(dataset.shape))
    dataset.id.read(memory, place, bits(into), mtype=_float_type_of(into.dtype))


def bits(tensor: Shaped[Tensor, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
    """Return a tensor's memory as a NumPy array; bfloat16 as int16, because NumPy has no bfloat16."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def write_ragged(file: h5py.File, name: str, rows: Sequence[Sequence[int]]) -> None:
    """Write integer rows as a group NAME with `values` and `offsets` (n_rows + 1)."""
    lengths = np.array([0, *(len(row) for row in rows)], dtype=np.int64)
    values = np.fromiter((v for row in rows for v in row), dtype=np.int32, count=int(lengths.sum()))
    write_checked(file, f"{name}/offsets", lengths.cumsum())
    write_checked(file, f"{name}/values", values)


def read_ragged(file: h5py.File, name: str) -> list[Int[np.ndarray, " numbers"]]:
    """Return the rows of a ragged group."""
    values, offsets = file[f"{name}/values"][:], file[f"{name}/offsets"][:]
    return [values[a:b] for a, b in pairwise(offsets)]


def write_checked(file: h5py.File, name: str, data: Shaped[np.ndarray, ...]) -> None:
    """Write an array with an HDF5 checksum (none for an empty array)."""
    file.create_dataset(name, data=data, fletcher32=True if data.size else None)


@lru_cache(maxsize=64)  # the shards of a locus have the same, and making it takes as long as reading
def _spaces(
    rows: tuple[int, ...], layer: int, position: int, start: int, shape: tuple[int, ...]
) -> tuple[h5py.h5s.SpaceID, h5py.h5s.SpaceID]:
    place = h5py.h5s.create_simple(shape)
    place.select_hyperslab((layer, position, start, 0), (1, 1, *rows))
    return h5py.h5s.create_simple(rows), place


@lru_cache
def _float_type_of(dtype: torch.dtype) -> h5py.h5t.TypeFloatID:
    return float_type(str(dtype).removeprefix("torch."))  # type: ignore[arg-type]
