"""Finds a specification: a shipped one by its name, or a YAML file by its path."""

from __future__ import annotations

from pathlib import Path

from extract.errors import UserError


def find_spec(name: str, folder: Path, what: str) -> Path:
    """Return the shipped specification `name` in a folder, or the given path of a YAML file.

    Args:
        what: what a specification describes, for the message.

    Raises:
        UserError: no shipped specification has this name.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    shipped = folder / f"{name}.yaml"
    if not shipped.is_file():
        known = ", ".join(sorted(spec.stem for spec in folder.glob("*.yaml")))
        raise UserError(f"no {what} named {name!r}; choose from {known}, or give the path of a YAML specification")
    return shipped
