"""Draws one balanced set of prompts from several: as many of each label, evenly from each source, groups kept whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt

Group = list[int]  # rows of prompts that belong together
Place = tuple[str, str, str]  # label, source, category


def mixed(prompts: Sequence[Prompt], each: int, seed: int) -> list[Prompt]:
    """Draw prompts until every label has `each`, or no further group fits; the order is kept.

    The rarest label is drawn first, since its groups may hold others too (a pair of a harmful and a benign request).
    Each draw is from the source, and then the category, that have given least to the label. A group is taken whole or
    not at all, so a label may end a little below `each`, and never above.

    Raises:
        UserError: a label has fewer prompts than are asked for.
    """
    there = Counter(prompt.label for prompt in prompts)
    if short := {label: n for label, n in there.items() if n < each}:
        named = ", ".join(f"{n} {label}" for label, n in short.items())
        raise UserError(f"the sets hold only {named}; ask for fewer with --each, or name more sets")
    waiting = _shuffled(prompts, seed)
    taken, given = Counter[str](), Counter[Place]()
    rows: Group = []
    for label in sorted(there, key=lambda label: (there[label], label)):
        while (found := _next(label, prompts, waiting, taken, given, each)) is not None:
            rows += found
            for row in found:
                taken[prompts[row].label] += 1
                given[_place(prompts[row])] += 1
    return [prompts[row] for row in sorted(rows)]


def _place(prompt: Prompt) -> Place:
    return prompt.label, prompt.source or "", prompt.category or ""


def _shuffled(prompts: Sequence[Prompt], seed: int) -> dict[Place, list[Group]]:
    """Return the groups in random order, each at the place of every label that it holds."""
    members: dict[int, Group] = defaultdict(list)
    for row, number in enumerate(groups_of(prompts).tolist()):
        members[number].append(row)
    order = np.random.default_rng(seed).permutation(sorted(members))
    waiting: dict[Place, list[Group]] = defaultdict(list)
    for number in order.tolist():
        for place in {prompts[row].label: _place(prompts[row]) for row in members[number]}.values():
            waiting[place].append(members[number])
    return waiting


def _next(
    label: str, prompts: Sequence[Prompt], waiting: dict[Place, list[Group]], taken: Counter[str],
    given: Counter[Place], each: int,
) -> Group | None:  # fmt: skip
    """Take the next group of a label that fits out of those that wait everywhere; None where none does."""
    of_source = Counter[str]()
    for (own, source, _), n in given.items():
        of_source[source] += n * (own == label)
    mine = [place for place in waiting if place[0] == label]
    for place in sorted(mine, key=lambda place: (of_source[place[1]], given[place], place)):
        for group in waiting[place]:
            more = Counter(prompts[row].label for row in group)
            if all(taken[one] + n <= each for one, n in more.items()):
                for held in waiting.values():
                    if group in held:
                        held.remove(group)
                return group
    return None
