"""Reads the entries of a ZIP file one at a time, including Zstandard-compressed ones (ZIP method 93)."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from extract.errors import UserError

_ZSTANDARD = 93  # zipfile lists these entries but cannot read them
_LOCAL_HEADER = 30  # bytes; then the name and the extra field, whose lengths are in its last four bytes


def entries(path: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each JSON file in a folder of the archive; of duplicate names the last.

    Raises:
        UserError: the file is not a ZIP archive, or is damaged; names the entry.
    """
    name = ""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            found = {info.filename: info for info in archive.infolist()}
            for name, info in found.items():
                if name.startswith(folder) and name.endswith(".json"):
                    read = _zstandard(raw, info) if info.compress_type == _ZSTANDARD else archive.read(info)
                    yield name, read
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        where = f"{path}, {name}" if name else str(path)
        raise UserError(f"{where}: cannot be read as a ZIP archive: {error}") from None


def _zstandard(raw: io.BufferedReader, info: zipfile.ZipInfo) -> bytes:
    import pyarrow

    raw.seek(info.header_offset)
    header = raw.read(_LOCAL_HEADER)
    raw.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR)
    compressed = pyarrow.BufferReader(raw.read(info.compress_size))
    content = bytes(pyarrow.CompressedInputStream(compressed, "zstd").read())
    if zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile("its checksum does not match")
    return content
