"""Shipped files: the folder where the packages, configurations and organisms are installed."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve_shipped(path: Path) -> Path:
    """Return the path if it exists, else the shipped file with this path next to the installed packages."""
    shipped = ROOT / path
    return shipped if not path.exists() and not path.is_absolute() and shipped.exists() else path


LEAST_LETTERS = 4  # of a name that a file's name begins with


def nearest_yaml(path: Path) -> Path | None:
    """Return the YAML file with the nearest name, next to a missing one or shipped in configs/; None if none is."""
    folders = {path.parent: path.parent, ROOT / path.parent: path.parent}  # and how a file in each is written
    folders |= {ROOT / "configs": Path("configs"), ROOT / "configs" / "models": Path("configs", "models")}
    found = {
        file.stem: shown / file.name for folder, shown in reversed(folders.items()) for file in folder.glob("*.y*ml")
    }
    begun = [stem for stem in sorted(found) if len(path.stem) >= LEAST_LETTERS and stem.startswith(path.stem)]
    near = get_close_matches(path.stem, found, n=1, cutoff=0.75) or begun
    return found[near[0]] if near else None
