"""One completion as a file gives it, before anybody's wishes are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extract.prompts.prompt import OPTIONAL

PROMPT_FIELDS = ("label", "right_action", "epistemic_kind", *OPTIONAL)
FIELDS = ("id", "sample", "text", "messages", "completion", *PROMPT_FIELDS)


@dataclass(frozen=True)
class Given:
    """A row: all it has under its own names, and what of that its format says to be our fields."""

    place: str
    columns: Mapping[str, Any]
    fields: Mapping[str, Any]


def told(attributes: object) -> dict[str, Any]:
    """Return those of a prompt's attributes in another tool that have our names and are text, numbers or lists."""
    held = attributes if isinstance(attributes, Mapping) else {}
    return {
        name: held[name]
        for name in PROMPT_FIELDS
        if isinstance(held.get(name), str | int | float) or (name == "acceptable" and isinstance(held.get(name), list))
    }
