"""Shipped files: where the packages, the configurations and the organisms are installed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve_shipped(path: Path) -> Path:
    """Return the path, or the same one beside the installed packages where only that exists (shipped files)."""
    shipped = ROOT / path
    return shipped if not path.exists() and not path.is_absolute() and shipped.exists() else path
