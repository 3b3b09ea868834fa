"""The prompts of a run as arrays: labels, groups, and the part (train to test) of each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from extract.errors import UserError
from extract.prompts.groups import groups_apart, groups_of
from extract.prompts.prompt import ALL_LABELS, LABELS, Prompt
from extract.prompts.sources import PromptsConfig, draw
from probes.contrast import group_split
from probes.statistics.intervals import Estimate, effective_groups, wilson

PARTS = ("train", "validation", "calibration", "test")
TESTED = ("calibration", "test")  # no direction is fitted or chosen on their prompts; dials are certified on the first


@dataclass(frozen=True)
class Corpus:
    """Labelled prompts, split so that no pair, twin, entity, template or text is in two parts."""

    prompts: tuple[Prompt, ...]
    groups: np.ndarray  # (n,) int
    part: np.ndarray  # (n,) of PARTS

    def __len__(self) -> int:
        return len(self.prompts)

    def drawn(self, limit: int | None, limit_dual_use: int | None, seed: int) -> Corpus:
        """Return the prompts that `draw` takes, each in the group and part that it has among all."""
        some = draw([*self.prompts], limit, seed, limit_dual_use, self.part.tolist())
        row_of = {prompt.id: row for row, prompt in enumerate(self.prompts)}
        rows = [row_of[prompt.id] for prompt in some]
        return Corpus(tuple(some), self.groups[rows], self.part[rows])

    def labelled(self, label: str) -> np.ndarray:
        return np.array([prompt.label == label for prompt in self.prompts])

    @cached_property
    def harmful(self) -> np.ndarray:
        return self.labelled("harmful")

    @cached_property
    def benign(self) -> np.ndarray:
        return self.labelled("benign")

    @cached_property
    def uncertain(self) -> np.ndarray:
        return self.labelled("uncertain")

    @cached_property
    def rated(self) -> np.ndarray:
        """Prompts that the rates are counted on, (n,) bool: all but dual-use ones, which nothing is fitted to."""
        return self.harmful | self.benign | self.uncertain

    @cached_property
    def trigger(self) -> np.ndarray:
        return np.array([prompt.trigger is not None for prompt in self.prompts])

    @cached_property
    def twins(self) -> np.ndarray:
        """Known twins, (n,) bool: benign prompts that share a pair with an uncertain one; all benign if none does."""
        twin = self.benign & self.of_knowledge
        return twin if twin.any() else self.benign

    @cached_property
    def of_knowledge(self) -> np.ndarray:
        """Prompts to be declined only for not knowing, (n,) bool: uncertain ones and benign ones of their pairs."""
        doubtful = {p.pair for p in self.prompts if p.label == "uncertain" and p.pair}
        return self.uncertain | np.array([p.label == "benign" and p.pair in doubtful for p in self.prompts])

    @cached_property
    def requests(self) -> np.ndarray:
        """Benign prompts to compare harmful ones with, (n,) bool: those that are no known twins; all benign if none."""
        others = self.benign & ~self.twins
        return others if others.any() else self.benign

    @cached_property
    def strata(self) -> np.ndarray:
        """Label, category and trigger of each prompt, (n,) str: the content of a stratum is as similar as possible."""
        return np.array([f"{p.label}/{p.category or ''}/{'trigger' if p.trigger else ''}" for p in self.prompts])

    def within(self, *parts: str) -> np.ndarray:
        return np.isin(self.part, parts)

    @property
    def mirrored(self) -> Corpus:
        """The same prompts with train and test exchanged, and validation and calibration, for cross-fitting."""
        other = dict(zip(PARTS, reversed(PARTS), strict=True))
        return replace(self, part=np.array([other[part] for part in self.part], dtype=object))

    def counts(self) -> dict[str, int]:
        """Return the number of prompts of each label; of dual-use prompts only where there are any."""
        counts = {label: int(self.labelled(label).sum()) for label in ALL_LABELS}
        return {label: n for label, n in counts.items() if n or label in LABELS}

    def n_groups(self, rows: np.ndarray) -> int:
        return len(set(self.groups[rows].tolist()))

    def share_of_groups(self, whole: Corpus) -> float:
        """Return the share of a whole corpus' groups of harmful and uncertain prompts that this draw of it has."""
        drawn, every = (of.n_groups(np.flatnonzero(of.harmful | of.uncertain)) for of in (self, whole))
        return drawn / every if every else 1.0

    def independent_groups(self, rows: np.ndarray) -> int:
        """Return the number of groups of some rows, with links through these rows only."""
        return len(np.unique(self.groups_among(rows)))

    def effective_groups(self, rows: np.ndarray) -> float:
        """Return the effective number of groups among some rows, a lower bound (see `effective_number`)."""
        return effective_groups(self.groups_among(rows))

    def rate(self, did: np.ndarray, rows: np.ndarray, alpha: float = 0.05) -> Estimate:
        """Return the share of some rows that did, with Wilson's interval at their effective number of groups."""
        n = self.effective_groups(rows)
        return wilson(float(did[rows].sum()) * n / max(len(rows), 1), n, alpha)

    def groups_among(self, rows: np.ndarray) -> np.ndarray:
        """Return the group of each row, with links through these rows only.

        Questions about two strangers that replace one known person (entities `known/stranger`) share nothing that an
        abstention could depend on if the twin is not among the rows.
        """
        return groups_apart([self.prompts[row] for row in rows])


def divide(prompts: Sequence[Prompt], config: PromptsConfig, seed: int) -> Corpus:
    """Group and split prompts. If every prompt has a `split` from PARTS, these are used.

    Groups are divided within each category of a label, or, where that leaves more parts without a label, within labels.
    Dual-use prompts are only reported on: they go to test, except in a group with prompts of other labels, whose part
    they share. Where the other prompts go does not depend on them. UserError: the prompts' own split separates a group.
    """
    groups = groups_of(prompts)
    given = [prompt.split for prompt in prompts]
    if all(split in PARTS for split in given):
        part = np.array(given, dtype=object)
        if separated := _separated(groups, part):
            ids = " and ".join(repr(prompts[row].id) for row in separated)
            raise UserError(
                f"{config.described()}: field 'split' separates prompts of one pair, entity, template or "
                f"text, such as {ids}; give such prompts the same split, or none"
            )
    else:
        shares = {name: getattr(config, name) for name in PARTS}
        part = np.full(len(prompts), "test", dtype=object)
        rated = [row for row, prompt in enumerate(prompts) if prompt.label in LABELS]
        labels = [prompts[row].label for row in rated]
        strata = [f"{label}/{prompts[row].category or ''}" for row, label in zip(rated, labels, strict=True)]
        part[rated] = group_split(groups[rated], strata, shares, seed)
        if without := _empty_parts(part[rated], labels):  # categories of few groups leave nothing for a small part
            coarser = group_split(groups[rated], labels, shares, seed)
            if len(_empty_parts(coarser, labels)) < len(without):
                part[rated] = coarser
        of_group = dict(zip(groups[rated].tolist(), part[rated].tolist(), strict=True))
        part = np.array([of_group.get(group, "test") for group in groups.tolist()], dtype=object)
    return Corpus(tuple(prompts), groups, part)


def _separated(groups: np.ndarray, part: np.ndarray) -> tuple[int, int] | None:
    """Return two rows of one group that are in different parts, or None."""
    first: dict[int, int] = {}
    for row, group in enumerate(groups.tolist()):
        if part[row] != part[first.setdefault(group, row)]:
            return first[group], row
    return None


def check_parts(corpus: Corpus, config: PromptsConfig) -> None:
    """Raise UserError if one of the three labels is missing, from all or from a part."""
    if missing := set(LABELS) - {prompt.label for prompt in corpus.prompts}:
        raise UserError(
            f"{config.described()} holds no prompt labelled {', '.join(sorted(missing))}; all three labels "
            "are needed: add a prompt file or a public set that has them"
        )
    for name, label in _empty_parts(corpus.part, [prompt.label for prompt in corpus.prompts]):
        remedy = f"give more prompts (or answer more: generate.limit), or a 'split' with all of {', '.join(PARTS)}"
        raise UserError(f"{config.described()}: no {label} prompt falls into the {name} part; {remedy}")


def _empty_parts(part: np.ndarray, labels: Sequence[str]) -> list[tuple[str, str]]:
    present = set(zip(part.tolist(), labels, strict=True))
    return [(name, label) for name in PARTS for label in LABELS if (name, label) not in present]
