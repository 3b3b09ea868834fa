"""The prompts of a run: its prompt file and the public sets it names, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.config import DatasetConfig, PromptsConfig, beside_packages
from extract.dataset import load_dataset
from extract.errors import UserError
from extract.prompts import LABELS, Prompt, load_prompts
from probes.splits import linked_groups


def read_prompts(config: PromptsConfig, seed: int) -> list[Prompt]:
    """Read the prompts that a configuration names.

    Raises:
        UserError: a source cannot be read, or an id stands in two of them.
    """
    prompts = load_prompts(beside_packages(config.path)) if config.path else []
    for given in config.datasets:
        prompts += _set(given, seed)
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UserError(f"{config.described()}: id {prompt.id!r} stands twice; name each source once")
        seen.add(prompt.id)
    return prompts


def groups_of(prompts: Sequence[Prompt]) -> np.ndarray:
    """Number the groups of prompts that share a pair, an entity, a template or all their words; (n_prompts,) int.

    Of an entity within another, `whole/part`, the whole links.
    """
    return _linked(prompts, [p.entity and p.entity.split("/")[0] for p in prompts])


def groups_apart(prompts: Sequence[Prompt]) -> np.ndarray:
    """Number the groups that these prompts form by themselves; of an entity within another, `whole/part`, both link."""
    return _linked(prompts, [p.entity for p in prompts])


def _linked(prompts: Sequence[Prompt], entities: Sequence[str | None]) -> np.ndarray:
    words = ["\n".join(message["content"] for message in prompt.messages) for prompt in prompts]
    return linked_groups([p.pair for p in prompts], entities, [p.template for p in prompts], words)


def draw(prompts: list[Prompt], limit: int, seed: int) -> list[Prompt]:
    """Draw at most `limit` prompts of each label, whole groups at a time; the order is kept."""
    groups = groups_of(prompts)
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(row)
    taken: list[int] = []
    left = dict.fromkeys(LABELS, limit)
    for group in np.random.default_rng(seed).permutation(len(members)).tolist():
        labels = [prompts[row].label for row in members[group]]
        if all(labels.count(label) <= left[label] for label in LABELS):
            left = {label: left[label] - labels.count(label) for label in LABELS}
            taken += members[group]
    return [prompts[row] for row in sorted(taken)]


def _set(given: DatasetConfig, seed: int) -> list[Prompt]:
    described = given.name.endswith((".yaml", ".yml"))
    name = str(beside_packages(Path(given.name))) if described else given.name
    prompts = load_dataset(name, beside_packages(given.path) if given.path else None)
    return draw(prompts, given.limit, seed) if given.limit else prompts
