"""Quadruples: the balanced 2 x 2 of minimal pairs, trigger word or none by harmful or benign intent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from experiments.run.corpus import Corpus

QuadrupleMember = tuple[bool, bool]  # trigger present, intent harmful
MEMBERS: tuple[QuadrupleMember, ...] = ((True, True), (True, False), (False, True), (False, False))
NAMES = ("trigger_harmful", "trigger_benign", "no_trigger_harmful", "no_trigger_benign")  # in results.json


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
        return dict(zip(NAMES, np.bincount(self.member, minlength=len(NAMES)).tolist(), strict=True))

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
    member = np.array([MEMBERS.index(member_of(corpus, row)) for row in kept.tolist()], dtype=int)
    return Quadruples(kept, group, member)


def requests_in_pairs(corpus: Corpus, rows: Int[np.ndarray, " n_rows"]) -> list[int]:
    """Return the rows whose prompts give an intent and a pair."""
    return [int(r) for r in rows if corpus.prompts[r].intent in ("benign", "harmful") and corpus.prompts[r].pair]


def lacking(corpus: Corpus, rows: Int[np.ndarray, " n_rows"]) -> str:
    """Return why no pair holds all four cells, and what to change."""
    prompts, requests = [corpus.prompts[row] for row in rows], requests_in_pairs(corpus, rows)
    if not any(prompt.trigger for prompt in prompts):
        remedy = "fill the field 'trigger' (the word as written in the text) of requests that carry one"
        return f"no prompt names a trigger word: {remedy}"
    if not any(prompt.intent in ("benign", "harmful") for prompt in prompts):
        return "no prompt gives its intent: fill the field 'intent' with benign or harmful"
    if not requests:
        return "no request gives its group of minimal pairs: give the requests of one group the same 'pair'"
    seen = {member_of(corpus, row) for row in requests}
    if missing := [member_description(member) for member in MEMBERS if member not in seen]:
        return f"the 2 x 2 is unbalanced: no request is {' or '.join(missing)}; add such prompts to the pairs"
    what = "no pair holds all four of trigger and no trigger, benign and harmful"
    return f"{what}: give the four prompts of one quadruple the same 'pair'"


def member_of(corpus: Corpus, row: int) -> QuadrupleMember:
    """Return the cell that a prompt belongs to."""
    return corpus.prompts[row].trigger is not None, corpus.prompts[row].intent == "harmful"


def member_description(member: QuadrupleMember) -> str:
    """Describe a cell in words."""
    return f"{'harmful' if member[1] else 'benign'} {'with' if member[0] else 'without'} a trigger word"
