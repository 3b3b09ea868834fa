"""Groups of prompts that share a pair, an entity, a template or their full text; splits keep groups together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from extract.prompts.prompt import Prompt


def groups_of(prompts: Sequence[Prompt]) -> Int[np.ndarray, " prompts"]:
    """Number the groups of prompts that share a pair, entity (the whole of `whole/part`), template or their text."""
    return _linked(prompts, [p.entity and p.entity.split("/")[0] for p in prompts])


def groups_apart(prompts: Sequence[Prompt]) -> Int[np.ndarray, " prompts"]:
    """Number these groups, but link `whole/part` entities only if both parts are equal."""
    return _linked(prompts, [p.entity for p in prompts])


def _linked(prompts: Sequence[Prompt], entities: Sequence[str | None]) -> Int[np.ndarray, " prompts"]:
    words = ["\n".join(message["content"] for message in prompt.messages) for prompt in prompts]
    return linked_groups([p.pair for p in prompts], entities, [p.template for p in prompts], words)


def linked_groups(*keys: Sequence[str | None]) -> Int[np.ndarray, " samples"]:
    """Number the connected components of samples that share a value in any column; without values one is its own."""
    n = len(keys[0])
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for column in keys:
        first: dict[str, int] = {}
        for i, value in enumerate(column):
            if value:
                parent[root(i)] = root(first.setdefault(value, i))
    _, numbered = np.unique([root(i) for i in range(n)], return_inverse=True)
    return numbered
