"""Checksum block of a finished file: its first 512 bytes hold its length and the SHA-256 of the rest.

HDF5 allows such a user block and looks for its own data after it. The strings and maps of an index are in heaps without
HDF5 checksums, so the block is verified before HDF5 reads them. Activations in the same file (a flat file) are excluded
by their byte ranges, because HDF5 verifies the checksum of each of their chunks on reading.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

BLOCK_SIZE = 512  # the smallest user block of HDF5
STEP = 1 << 22
SIGNATURE = b"\x89HDF\r\n\x1a\n"
BEGINS = b"refusal-probes store of "
FORM = re.compile(
    BEGINS + rb"(\d+) bytes\nwith checksums of their own: ((?:\d+-\d+(?:, \d+-\d+)*)?)\n"
    rb"sha256 of the others after this block: ([0-9a-f]{64})\n"
)


class Seekable(Protocol):
    """A file object that can be read from any offset."""

    def seek(self, offset: int, whence: int = ..., /) -> int: ...

    def read(self, size: int = ..., /) -> bytes | None: ...


def checksum_block(file: Seekable, unread: Sequence[range] = ()) -> bytes:
    """Return the checksum block of a file over all bytes except `unread`, which HDF5 itself verifies."""
    size = file.seek(0, 2)
    return _block(size, unread, _digest(file, size, unread))


def block_fault(path: Path) -> str | None:
    """Return what is wrong with a file by its checksum block; None if it is unchanged."""
    with path.open("rb", buffering=0) as file:
        block = file.read(BLOCK_SIZE) or b""
        found = FORM.match(block)
        if found is None:
            return "is not a readable HDF5 file (cut short?) with the checksum block of a finished store"
        size, actual = int(found[1]), file.seek(0, 2)
        if actual != size:
            return f"is not a readable HDF5 file (cut short?): it has {actual} bytes, not {size}"
        unread = [range(*map(int, part.split(b"-"))) for part in found[2].split(b", ") if part]
        if block != _block(size, unread, _digest(file, size, unread)):
            return "is damaged: its bytes have changed since it was finished"
    return None


def is_plain_hdf5(path: Path) -> bool:
    """Return whether a file is HDF5 from its first byte, without a checksum block."""
    with path.open("rb") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE


def was_store(path: Path) -> bool:
    """Return whether a file begins as a store does, or has HDF5 data where a store has them."""
    with path.open("rb") as file:
        head = file.read(BLOCK_SIZE + len(SIGNATURE))
    return head.startswith((BEGINS, SIGNATURE)) or head[BLOCK_SIZE:] == SIGNATURE


def _block(size: int, unread: Sequence[range], digest: str) -> bytes:
    parts = ", ".join(f"{part.start}-{part.stop}" for part in unread)
    text = (
        f"refusal-probes store of {size} bytes\nwith checksums of their own: {parts}\n"
        f"sha256 of the others after this block: {digest}\n"
    ).encode()
    assert len(text) <= BLOCK_SIZE, "too many parts for one block"
    return text.ljust(BLOCK_SIZE, b"\0")


def _digest(file: Seekable, size: int, unread: Sequence[range]) -> str:
    digest = hashlib.sha256()
    starts = [BLOCK_SIZE, *(part.stop for part in unread)]
    stops = [*(part.start for part in unread), size]
    for start, stop in zip(starts, stops, strict=True):
        file.seek(start)
        for at in range(start, stop, STEP):
            digest.update(file.read(min(STEP, stop - at)) or b"")
    return digest.hexdigest()
