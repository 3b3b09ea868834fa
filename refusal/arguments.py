"""Layers and positions as a notebook gives them: one or several, or None for all."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from extract.errors import UserError


def as_layers(given: int | Iterable[int] | None) -> list[int] | None:
    """Return numbers of layers, each once and in order; None for all.

    Raises:
        UserError: there are none, or one is no whole number.
    """
    if given is None:
        return None
    try:
        found = sorted({operator.index(layer) for layer in (given if isinstance(given, Iterable) else [given])})
    except TypeError:
        raise UserError(f"layers are whole numbers from 0; got {given!r}") from None
    if not found:
        raise UserError("layers is empty; name some, or leave it out for all")
    return found


def as_positions(given: str | Iterable[str] | None) -> list[str] | None:
    """Return names of positions; None for all.

    Raises:
        UserError: there are none.
    """
    if given is None:
        return None
    found = [given] if isinstance(given, str) else list(given)
    if not found:
        raise UserError("positions is empty; name some, or leave it out for all")
    return found
