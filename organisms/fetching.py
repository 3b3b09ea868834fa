"""Takes organisms that the wheel leaves out into the cache, from a clone, a URL or a hub repository, by checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from extract.errors import UserError, in_one_line
from extract.model.source import made_once
from extract.shipped import ROOT, cache_folder, organism_files

SILENT_S = 30.0  # after which a server that sends nothing has failed


def installed(name: str) -> Path | None:
    """Return the folder of an organism that is installed, or in the cache as it is shipped; None: it has to be taken.

    Raises:
        UserError: no organism has this name.
    """
    files = _files(name)
    for home in (ROOT, cache_folder()):
        if all((home / path).is_file() and _digest((home / path).read_bytes()) == sum for path, sum in files.items()):
            return home / next(iter(files)).parent
    return None


def fetch(name: str, source: str) -> Path:
    """Take an organism's files into the cache, all or none of them, and return their folder.

    Args:
        source: the folder of a clone, the URL of one (https://HOST/…/main), or a hub repository (OWNER/NAME).

    Raises:
        UserError: there is no such organism or source, a file differs from the one shipped, or the cache cannot be
            written.
    """
    files, read = _files(name), _reader(source)
    folder = next(iter(files)).parent.as_posix()

    def take(partial: Path) -> None:
        for path, digest in files.items():
            content = _read(read, path, source)
            if _digest(content) != digest:
                raise UserError(f"{path} of {source} is not the file of this version (its SHA-256 differs)")
            (partial / path.name).write_bytes(content)

    return made_once(folder, take, replace=True)


def _files(name: str) -> dict[Path, str]:
    known = organism_files()
    if name not in known:
        raise UserError(f"no organism named {name!r}; choose from {', '.join(sorted(known))}")
    return known[name]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(read: Callable[[Path], bytes], path: Path, source: str) -> bytes:
    try:
        return read(path)
    except Exception as error:  # of the hub's client too, which has classes of its own
        raise UserError(f"{source} does not give {path}: {in_one_line(error)}") from None


def _reader(source: str) -> Callable[[Path], bytes]:
    """Return what reads a file of a source."""
    if source.startswith(("http://", "https://")):
        return lambda path: _download(f"{source.rstrip('/')}/{path.as_posix()}")
    if Path(source).is_dir():
        return lambda path: (Path(source) / path).read_bytes()
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UserError(f"no folder {source}; give a clone's folder, the URL of one, or a hub repository OWNER/NAME")
    return lambda path: _from_hub(source, path)


def _download(url: str) -> bytes:
    with urlopen(url, timeout=SILENT_S) as answer:
        content: bytes = answer.read()
    return content


def _from_hub(repository: str, path: Path) -> bytes:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, path.as_posix())).read_bytes()
