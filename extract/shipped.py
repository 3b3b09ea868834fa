"""Shipped files: those installed with the packages, and organisms that `refusal organism get` put into the cache."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from extract.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
CACHE_VARIABLE = "REFUSAL_CACHE"
CHECKSUMS = ROOT / "organisms" / "SHA256SUMS"  # of organisms' files
LEAST_LETTERS = 4  # of a name that a file's name begins with


def cache_folder() -> Path:
    """Return the folder for files that can be made again: $REFUSAL_CACHE, or refusal-probes in the user's cache."""
    configured = os.environ.get(CACHE_VARIABLE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(configured) if configured else user / "refusal-probes"


def resolve_shipped(path: Path) -> Path:
    """Return the path if it exists, else the shipped file with this path: installed with us, or in the cache.

    A path may begin with an organism's name: `two-knobs/prompts.jsonl` is `organisms/zoo/two-knobs/prompts.jsonl`.
    """
    if path.exists() or path.is_absolute():
        return path
    if (ROOT / path).exists():
        return ROOT / path
    organisms = organism_files()
    if path.parts and path.parts[0] in organisms:
        return resolve_shipped(next(iter(organisms[path.parts[0]])).parent.joinpath(*path.parts[1:]))
    homes = {name: {*files, *(p.parent for p in files)} for name, files in organisms.items()}
    organism = next((name for name, paths in homes.items() if path in paths), None)
    if organism is None:
        return path
    if not (cache_folder() / path).exists():
        raise UserError(f"{path} is not installed; take it with: refusal organism get {organism}")
    return cache_folder() / path


def shipped(pattern: str) -> dict[str, Path]:
    """Return the shipped files that match a pattern, by their path below the packages' folder or the cache."""
    homes = (cache_folder(), ROOT)  # the installed one counts
    return {path.relative_to(home).as_posix(): path for home in homes for path in sorted(home.glob(pattern))}


def organism_files() -> dict[str, dict[Path, str]]:
    """Return the SHA-256 of each file of every organism, by the organism's name."""
    files: dict[str, dict[Path, str]] = {}
    for line in CHECKSUMS.read_text(encoding="utf-8").splitlines():
        digest, path = line.split(maxsplit=1)
        files.setdefault(Path(path).parent.name, {})[Path(path)] = digest
    return files


def named_yaml(given: str, folder: Path, what: str, others: Iterable[str] = ()) -> Path:
    """Return a YAML file by its path, or by its name in a shipped folder; UserError: there is none.

    `others` are names that stand for no file.
    """
    path = resolve_shipped(Path(given)) if given.endswith((".yaml", ".yml")) else folder / f"{given}.yaml"
    if path.is_file():
        return path
    names = [*others, *sorted(file.stem for file in folder.glob("*.yaml"))]
    near = "".join(f"did you mean {name}? " for name in get_close_matches(given.lower(), names, n=1))
    raise UserError(f"no {what} named {given!r}; {near}choose from {', '.join(names)}, or give the path of a YAML file")


def nearest_yaml(path: Path) -> Path | None:
    """Return the YAML file with the nearest name, next to a missing one or shipped in configs/; None if none is."""
    folders = {path.parent: path.parent, ROOT / path.parent: path.parent}  # and how a file in each is written
    folders |= {ROOT / "configs": Path("configs"), ROOT / "configs" / "models": Path("configs", "models")}
    files = {
        file.stem: shown / file.name for folder, shown in reversed(folders.items()) for file in folder.glob("*.y*ml")
    }
    begun = [stem for stem in sorted(files) if len(path.stem) >= LEAST_LETTERS and stem.startswith(path.stem)]
    near = get_close_matches(path.stem, files, n=1, cutoff=0.75) or begun
    return files[near[0]] if near else None
