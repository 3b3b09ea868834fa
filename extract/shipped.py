"""Shipped files: the folder where the packages, configurations and organisms are installed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve_shipped(path: Path) -> Path:
    """Return the path if it exists, else the shipped file with this path next to the installed packages."""
    shipped = ROOT / path
    return shipped if not path.exists() and not path.is_absolute() and shipped.exists() else path
