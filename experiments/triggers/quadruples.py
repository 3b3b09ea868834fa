"""Quadruples: the balanced 2 x 2 of minimal pairs, trigger word or none by harmful or benign intent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from experiments.run.corpus import Corpus

QuadrupleMember = tuple[bool, bool]  # trigger present, intent harmful
MEMBERS: tuple[QuadrupleMember, ...] = ((True, True), (True, False), (False, True), (False, False))


@dataclass(frozen=True)
class Quadruples:
    """Prompts of pairs that hold all four cells; `group` numbers independent groups, `member` indexes MEMBERS."""

    rows: Int[np.ndarray, " n_prompts"]  # of the corpus
    group: Int[np.ndarray, " n_prompts"]  # 0 ... n_groups - 1
    member: Int[np.ndarray, " n_prompts"]

    @property
    def n_groups(self) -> int:
        return int(self.group.max() + 1) if len(self.group) else 0

    def counts(self) -> dict[str, int]:
        """Return the prompts of each cell, by its name."""
        return {member_name(member): int((self.member == i).sum()) for i, member in enumerate(MEMBERS)}

    def cell_means(self, values: Shaped[np.ndarray, "n_prompts ..."]) -> Float[np.ndarray, "n_groups 4 ..."]:
        """Return the cell means of each group; `values` has one entry for each of `rows`."""
        values = np.asarray(values, dtype=np.float64)
        total = np.zeros((self.n_groups, len(MEMBERS), *values.shape[1:]))
        n = np.zeros((self.n_groups, len(MEMBERS)))
        np.add.at(total, (self.group, self.member), values)
        np.add.at(n, (self.group, self.member), 1)
        return total / n.reshape(*n.shape, *(1,) * (values.ndim - 1))


def quadruples(corpus: Corpus, rows: Int[np.ndarray, " n_rows"]) -> Quadruples:
    """Return, among some prompts, those of pairs that hold all four cells."""
    held: dict[str, set[QuadrupleMember]] = {}
    requests = requests_in_pairs(corpus, rows)
    for row in requests:
        held.setdefault(str(corpus.prompts[row].pair), set()).add(member_of(corpus, row))
    complete = {pair for pair, cells in held.items() if len(cells) == len(MEMBERS)}
    kept = np.array([row for row in requests if corpus.prompts[row].pair in complete], dtype=int)
    group = np.unique(corpus.groups[kept], return_inverse=True)[1].reshape(-1)
    return Quadruples(
        kept, group, np.array([MEMBERS.index(member_of(corpus, row)) for row in kept.tolist()], dtype=int)
    )


def requests_in_pairs(corpus: Corpus, rows: Int[np.ndarray, " n_rows"]) -> list[int]:
    """Return the rows whose prompts give an intent and a pair."""
    return [int(r) for r in rows if corpus.prompts[r].intent in ("benign", "harmful") and corpus.prompts[r].pair]


def lacking(corpus: Corpus, rows: Int[np.ndarray, " n_rows"]) -> str:
    """Return why no pair holds all four cells, and what to change."""
    prompts = [corpus.prompts[row] for row in rows]
    if not any(prompt.trigger for prompt in prompts):
        return (
            "no prompt names a trigger word: fill the field 'trigger' (the word as written in the text) of "
            "requests that carry one"
        )
    if not any(prompt.intent in ("benign", "harmful") for prompt in prompts):
        return "no prompt gives its intent: fill the field 'intent' with benign or harmful"
    requests = requests_in_pairs(corpus, rows)
    if not requests:
        return "no request gives its group of minimal pairs: give the requests of one group the same 'pair'"
    counts = Counter(member_of(corpus, row) for row in requests)
    if missing := [member_description(member) for member in MEMBERS if not counts[member]]:
        return f"the 2 x 2 is unbalanced: no request is {' or '.join(missing)}; add such prompts to the pairs"
    return (
        "no pair holds all four of trigger and no trigger, benign and harmful: give the four prompts of one "
        "quadruple the same 'pair'"
    )


def member_of(corpus: Corpus, row: int) -> QuadrupleMember:
    """Return the cell that a prompt belongs to."""
    return corpus.prompts[row].trigger is not None, corpus.prompts[row].intent == "harmful"


def member_name(member: QuadrupleMember) -> str:
    """Name a cell, as in results.json."""
    return f"{'trigger' if member[0] else 'no_trigger'}_{'harmful' if member[1] else 'benign'}"


def member_description(member: QuadrupleMember) -> str:
    """Describe a cell in words."""
    return f"{'harmful' if member[1] else 'benign'} {'with' if member[0] else 'without'} a trigger word"
