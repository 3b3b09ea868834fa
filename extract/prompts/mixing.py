"""Draws one balanced set of prompts from several: equal labels, evenly from each source, whole groups first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt

Group = list[int]  # rows of prompts that belong together
Place = tuple[str, str, str]  # label, source, category


def mixed(prompts: Sequence[Prompt], each: int, seed: int) -> list[Prompt]:
    """Draw `each` prompts of every label; the order is kept.

    The next group is one of the label that lacks most, from the source, and then the category, that have given least to
    that label; the commonest label comes last, since groups of others hold it too (a pair of a harmful and a benign
    request). Where no whole group fits any more, only its prompts of the label that lacks are taken.

    Raises:
        UserError: a label has fewer prompts than are asked for.
    """
    there = Counter(prompt.label for prompt in prompts)
    if short := {label: n for label, n in there.items() if n < each}:
        named = ", ".join(f"{n} {label}" for label, n in short.items())
        raise UserError(f"the sets hold only {named}; ask for fewer with --each, or name more sets")
    draw = _Draw(prompts, each, _shuffled(prompts, seed))
    *rarer, commonest = sorted(there, key=lambda label: (there[label], label))
    for whole in (True, False):
        left = set(rarer)  # labels of which a group may still fit
        while lacking := [label for label in rarer if label in left and draw.taken[label] < each]:
            label = min(lacking, key=lambda label: draw.taken[label])
            if not draw.take(label, whole):
                left.remove(label)
        while draw.taken[commonest] < each and draw.take(commonest, whole):
            pass
    return [prompts[row] for row in sorted(draw.rows)]


class _Draw:
    """What has been drawn so far, and the groups that wait, by place."""

    def __init__(self, prompts: Sequence[Prompt], each: int, waiting: Mapping[Place, list[Group]]) -> None:
        self.rows: set[int] = set()
        self.taken = Counter[str]()
        self._prompts, self._each, self._waiting = prompts, each, waiting
        self._given = Counter[Place]()

    def take(self, label: str, whole: bool) -> bool:
        """Take the next group of a label that fits, or its prompts of the label; return whether there was one."""
        of_source = Counter[str]()
        for (own, source, _), n in self._given.items():
            of_source[source] += n * (own == label)
        mine = [place for place in self._waiting if place[0] == label]
        for place in sorted(mine, key=lambda place: (of_source[place[1]], self._given[place], place)):
            for group in self._waiting[place]:
                rows = [row for row in group if row not in self.rows and (whole or self._prompts[row].label == label)]
                rows = rows if whole else rows[: self._each - self.taken[label]]
                more = Counter(self._prompts[row].label for row in rows)
                if more[label] and all(self.taken[one] + n <= self._each for one, n in more.items()):
                    self.rows.update(rows)
                    self.taken += more
                    self._given.update(_place(self._prompts[row]) for row in rows)
                    return True
        return False


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
