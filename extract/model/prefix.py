"""Tokens that many prompts begin with, and the keys and values computed for them once."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prefix:
    """A shared beginning."""

    token_ids: tuple[int, ...]
    cache: Any

    def copies(self, n: int) -> Any:
        """Return its keys and values for n rows, to be gone on from."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(n)
        return cache
