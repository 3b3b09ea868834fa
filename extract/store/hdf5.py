"""HDF5 access of stores: opening files, reading and writing loci without conversion, and ragged integer rows.

bfloat16 is stored as an HDF5 floating-point type, which HDF5 itself converts to float32 on reading. Ragged rows are a
group of two arrays: all numbers in `values`, and the start of each row in `offsets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from extract.errors import UserError
from extract.store.checksum_block import block_fault, is_plain_hdf5, was_store
from extract.store.identity import MAKE, StoreType, refuse_schema

Rows = Float[Tensor, "rows d_model"]  # activations of one locus: a layer and a position
LIBVER = ("v110", "v110")  # the first version with metadata checksums; HDF5 1.10 and later can read it
TORCH_TYPES: dict[StoreType, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def open_hdf5(path: Path) -> h5py.File:
    """Open an HDF5 file for reading.

    Raises:
        UserError: the file is missing, cut short, or not HDF5.
    """
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise UserError(f"store not found: {path}; make it with: refusal extract CONFIG") from None
    except OSError as error:
        raise UserError(
            f"{path} is not a readable HDF5 file (cut short?): {error}; delete it and run refusal extract again"
        ) from None


def open_verified(path: Path) -> h5py.File:
    """Open a master or flat file after its checksum block is verified, before HDF5 reads any of it.

    Raises:
        UserError: the file is missing, cut short, changed since it was finished, or not a finished store.
    """
    if not path.exists():
        raise UserError(f"store not found: {path}; make it with: refusal extract CONFIG")
    if path.is_dir():
        raise UserError(f"{path} is a directory, not a store; {MAKE}")
    fault = block_fault(path)
    if fault is None:
        return open_hdf5(path)
    if is_plain_hdf5(path):  # of an earlier schema, or from another program
        with open_hdf5(path) as file:
            refuse_schema(path, file, "delete it with its shards and run refusal extract again")
    if not was_store(path):
        raise UserError(f"{path} is no HDF5 store; {MAKE}")
    raise UserError(f"{path} {fault}; delete it and run refusal extract again (finished shards are kept)")


def float_type(dtype: StoreType) -> h5py.h5t.TypeFloatID:
    """Return the HDF5 type for a dtype, the same on disk and in memory."""
    match dtype:
        case "float32":
            return h5py.h5t.IEEE_F32LE
        case "float16":
            return h5py.h5t.IEEE_F16LE
        case "bfloat16":
            return bfloat16_type()


def bfloat16_type() -> h5py.h5t.TypeFloatID:
    """Return the 16-bit HDF5 float type: sign at bit 15, exponent 7..14 with bias 127, mantissa 0..6."""
    kind = h5py.h5t.IEEE_F32LE.copy()
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
    memory, place = _spaces(dataset, layer, position, start, stored)
    dataset.id.write(memory, place, bits(stored), mtype=_memory_type(stored))


def read_locus(dataset: h5py.Dataset, layer: int, position: int, start: int, into: Rows) -> None:
    """Read rows of one locus from row `start` into a contiguous tensor of the dataset's dtype.

    Raises:
        OSError: the bytes on disk have changed since they were written.
    """
    memory, place = _spaces(dataset, layer, position, start, into)
    dataset.id.read(memory, place, bits(into), mtype=_memory_type(into))


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


def _spaces(
    dataset: h5py.Dataset, layer: int, position: int, start: int, rows: Rows
) -> tuple[h5py.h5s.SpaceID, h5py.h5s.SpaceID]:
    return _selection(tuple(rows.shape), layer, position, start, tuple(dataset.shape))


@lru_cache(maxsize=64)  # the shards of a locus have the same, and making it takes as long as reading
def _selection(
    rows: tuple[int, ...], layer: int, position: int, start: int, shape: tuple[int, ...]
) -> tuple[h5py.h5s.SpaceID, h5py.h5s.SpaceID]:
    place = h5py.h5s.create_simple(shape)
    place.select_hyperslab((layer, position, start, 0), (1, 1, *rows))
    return h5py.h5s.create_simple(rows), place


@lru_cache
def _float_type_of(dtype: torch.dtype) -> h5py.h5t.TypeFloatID:
    return float_type(str(dtype).removeprefix("torch."))  # type: ignore[arg-type]


def _memory_type(tensor: Tensor) -> h5py.h5t.TypeFloatID:
    return _float_type_of(tensor.dtype)
