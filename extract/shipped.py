"""Shipped files: the folder where the packages, configurations and organisms are installed."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve_shipped(path: Path) -> Path:
    """Return the path if it exists, else the shipped file with this path next to the installed packages."""
    shipped = ROOT / path
    return shipped if not path.exists() and not path.is_absolute() and shipped.exists() else path


def nearest_yaml(path: Path) -> Path | None:
    """Return the YAML file with the nearest name, next to a missing one or shipped in configs/; None if none is."""
    folders = {path.parent: path.parent, ROOT / path.parent: path.parent}  # and how a file in each is written
    folders |= {ROOT / "configs": Path("configs"), ROOT / "configs" / "models": Path("configs", "models")}
    found = {
        file.stem: shown / file.name for folder, shown in reversed(folders.items()) for file in folder.glob("*.y*ml")
    }
    near = get_close_matches(path.stem, found, n=1) or [stem for stem in sorted(found) if stem.startswith(path.stem)]
    return found[near[0]] if near else None
