"""Read a YAML file somebody wrote. What its keys mean, and which there are, is the caller's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from extract.errors import UserError


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the keys and values of a YAML file.

    Args:
        what: names the kind of file in messages, as in `configuration not found: mine.yaml`.

    Raises:
        UserError: the file is missing, a directory, unreadable, not UTF-8, not YAML, or no mapping; in one line.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{what} not found: {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory; give a YAML {what}") from None
    except OSError as error:
        raise UserError(f"cannot read the {what} {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date such as 2026-13-01
        raise UserError(f"{path} is not readable YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else type(raw).__name__
        raise UserError(f"{path} must hold keys and values, found {found}")
    return raw
