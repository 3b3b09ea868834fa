"""Prompts of a run: its prompt file and the public data sets in its configuration, with limits and balanced draws."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from extract.errors import UserError
from extract.prompts.dataset import load_dataset
from extract.prompts.groups import groups_of
from extract.prompts.prompt import ALL_LABELS, DUAL_USE, LABELS, USUAL_ACTION, Prompt, load_prompts
from extract.shipped import resolve_shipped
from extract.yaml_file import Strict


class DatasetConfig(Strict):
    """One public data set in a run."""

    name: str  # a set in configs/datasets, or the path of a YAML file like those
    path: Path | None = None  # a local file of the set, or the directory of its files; None reads from the hub
    limit: int | None = Field(None, ge=1)  # most prompts of each label for each question: see `draw`


class PromptsConfig(Strict):
    """Sources of the prompts, and the shares of the splits: each part gets its share of their sum, groups whole."""

    path: Path | None = None  # a prompt file; it comes before the public sets
    datasets: tuple[DatasetConfig, ...] = ()  # their own splits are used only if every prompt of the run has one
    limit: int | None = Field(None, ge=1)  # most prompts of each label for each question: see `draw`
    # most prompts of each label for each question that are read, and no fewer than are answered; unlike under `limit`,
    # each stays in the part that it has among all
    read: int | None = Field(None, ge=1)
    contrast: tuple[str, str] | None = None  # two values of the prompts' field `decline`, in place of the two refusals
    train: float = Field(0.35, gt=0)  # fits directions and probes
    validation: float = Field(0.15, gt=0)  # chooses loci and layers
    calibration: float = Field(0.15, gt=0)  # certifies the dials' thresholds; the dials use it for nothing else
    test: float = Field(0.35, gt=0)  # reported; used for nothing else

    @model_validator(mode="after")
    def _some_prompts(self) -> PromptsConfig:
        if self.path is None and not self.datasets:
            raise ValueError(
                "no prompts; give prompts.path, a prompt file, or prompts.datasets, a list of public "
                "sets such as {name: xstest} (refusal prompts sets lists them)"
            )
        return self

    @model_validator(mode="after")
    def _shares_of_one_whole(self) -> PromptsConfig:
        shares = {name: getattr(self, name) for name in ("train", "validation", "calibration", "test")}
        if (total := sum(shares.values())) > 1 + 1e-6:
            given = ", ".join(f"{name} {share:g}" for name, share in shares.items())
            raise ValueError(f"the shares of the parts sum to {total:.3g}, and 1 is the whole ({given}); lower some")
        return self

    def described(self) -> str:
        """Return the names of the prompts' sources, for messages."""
        return " + ".join([str(self.path)] * (self.path is not None) + [given.name for given in self.datasets])


def read_prompts(config: PromptsConfig, seed: int) -> list[Prompt]:
    """Read the prompts of a configuration, drawn with the seed where there is a limit; UserError if ids repeat."""
    prompts = load_prompts(resolve_shipped(config.path)) if config.path else []
    for given in config.datasets:
        described = given.name.endswith((".yaml", ".yml"))
        name = str(resolve_shipped(Path(given.name))) if described else given.name
        members = load_dataset(name, resolve_shipped(given.path) if given.path else None)
        prompts += draw(members, given.limit, seed) if given.limit else members
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UserError(f"{config.described()}: id {prompt.id!r} occurs twice; name each source once")
        seen.add(prompt.id)
    if config.contrast:
        prompts = contrasted(prompts, config.contrast, config.described())
    return draw(prompts, config.limit, seed)


def draw(
    prompts: list[Prompt],
    limit: int | None,
    seed: int,
    limit_dual_use: int | None = None,
    parts: Sequence[str] | None = None,
) -> list[Prompt]:
    """Draw at most `limit` prompts of each label for each question; the order is kept.

    The questions are harmful prompts with their benign twins, uncertain prompts with theirs, and dual use; other benign
    prompts fill what the twins leave of the limit. Intervals count groups, so one unit of each group comes before the
    second of any. A unit is a prompt of each label with a trigger, and of each without: twins, or a whole quadruple.
    `parts`: the part of each prompt, of all of which an equal share is drawn.
    """
    if limit is None and limit_dual_use is None:
        return prompts
    most = dict.fromkeys(ALL_LABELS, len(prompts) if limit is None else limit)
    most[DUAL_USE] = min(most[DUAL_USE], len(prompts) if limit_dual_use is None else limit_dual_use)
    waiting: list[tuple[tuple[bool, bool, int, float], str, list[int]]] = []
    groups, questions = _shuffled_groups(prompts, seed), list[str]()
    for group in groups:
        labels = {prompts[row].label for row in group}
        questions.append(next(label for label in (*LABELS[1:], *ALL_LABELS) if label in labels))
    strata = [
        (question, parts[group[0]]) if parts is not None else ""
        for question, group in zip(questions, groups, strict=True)
    ]
    size, before = Counter(strata), Counter[Any]()
    for question, group, stratum in zip(questions, groups, strata, strict=True):
        place = (before[stratum] + 0.5) / size[stratum]
        before[stratum] += 1
        for turn, unit in enumerate(_units(prompts, group)):
            without = all(prompts[row].label != question for row in unit)
            waiting.append(((question == "benign", without, turn, place), question, unit))
    taken = Counter[tuple[str, str]]()  # by question and label
    drawn: list[int] = []
    for _, question, unit in sorted(waiting):
        for row in unit:
            label = prompts[row].label
            sharing = [question] if label == "benign" != question else ALL_LABELS  # questions with one limit
            if sum(taken[other, label] for other in sharing) < most[label]:
                taken[question, label] += 1
                drawn.append(row)
    return [prompts[row] for row in sorted(drawn)]


def _units(prompts: Sequence[Prompt], group: Sequence[int]) -> list[list[int]]:
    """Divide the rows of a group into units: the first of each label with and without a trigger, the second, …."""
    cells: dict[tuple[str, bool], list[int]] = {}
    for row in group:
        cells.setdefault((prompts[row].label, prompts[row].trigger is None), []).append(row)
    return [[row for row in unit if row is not None] for unit in zip_longest(*cells.values())]


def _shuffled_groups(prompts: Sequence[Prompt], seed: int) -> list[list[int]]:
    members: dict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(groups_of(prompts).tolist()):
        members[group].append(row)
    return [members[group] for group in np.random.default_rng(seed).permutation(len(members)).tolist()]


LABEL_OF = ("harmful", "uncertain")  # the labels that the two ways take


def contrasted(prompts: Sequence[Prompt], ways: tuple[str, str], described: str) -> list[Prompt]:
    """Label the prompts of the first way harmful and those of the second uncertain; benign ones stay as they are.

    Ways are values of the field `decline`. Prompts to be declined in another way become dual use, to which nothing is
    fitted.
    """
    named = sorted({prompt.decline for prompt in prompts if prompt.decline})
    for way in ways:
        if way not in named:
            known = f"the ways are {', '.join(named)}" if named else "no prompt has this field"
            raise UserError(f"{described}: no prompt has the field 'decline' with the value {way!r}; {known}")
    if ways[0] == ways[1]:
        raise UserError(f"a contrast needs two different ways of declining, got {ways[0]!r} twice")
    labels, labelled = dict(zip(ways, LABEL_OF, strict=True)), list[Prompt]()
    for prompt in prompts:
        if label := labels.get(prompt.decline or ""):
            prompt = replace(prompt, label=label, right_action=USUAL_ACTION[label], acceptable=())
        elif prompt.decline is not None or prompt.label != "benign":
            prompt = replace(prompt, label=DUAL_USE)
        labelled.append(prompt)
    return labelled


def contrasted_action(action: str | None, prompt: Prompt) -> str | None:
    """Return a completion's action in a contrast: a decline, however worded, is the one of the prompt's way."""
    if action in ("refuse", "abstain") and prompt.label in LABEL_OF:
        return USUAL_ACTION[prompt.label]
    return action


Place = tuple[str, str, str]  # label, source, category


def mixed(prompts: Sequence[Prompt], each: int, seed: int) -> list[Prompt]:
    """Draw `each` prompts of every label; the order is kept.

    The next group is one of the label that lacks most, from the source, and then the category, that have given least to
    that label; the commonest label comes last, since groups of others hold it too (a pair of a harmful and a benign
    request). Where no whole group fits any more, only its prompts of the label that lacks are taken.
    """
    there = Counter(prompt.label for prompt in prompts)
    if short := {label: n for label, n in there.items() if n < each}:
        named = ", ".join(f"{n} {label}" for label, n in short.items())
        raise UserError(f"the sets hold only {named}; ask for fewer with --each, or name more sets")
    places: list[Place] = [(prompt.label, prompt.source or "", prompt.category or "") for prompt in prompts]
    waiting: dict[Place, list[list[int]]] = defaultdict(list)  # a group waits at the place of every label in it
    for group in _shuffled_groups(prompts, seed):
        for place in {places[row][0]: places[row] for row in group}.values():
            waiting[place].append(group)
    drawn, taken, given = set[int](), Counter[str](), Counter[Place]()

    def take(label: str, whole: bool) -> bool:
        """Take the next group of a label that fits, or its prompts of the label; return whether there was one."""
        of_source = Counter[str]()
        for (own, source, _), n in given.items():
            of_source[source] += n * (own == label)
        mine = [place for place in waiting if place[0] == label]
        for place in sorted(mine, key=lambda place: (of_source[place[1]], given[place], place)):
            for group in waiting[place]:
                rows = [row for row in group if row not in drawn and (whole or prompts[row].label == label)]
                rows = rows if whole else rows[: each - taken[label]]
                more = Counter(prompts[row].label for row in rows)
                if more[label] and all(taken[one] + n <= each for one, n in more.items()):
                    drawn.update(rows)
                    taken.update(more)
                    given.update(places[row] for row in rows)
                    return True
        return False

    *rarer, commonest = sorted(there, key=lambda label: (there[label], label))
    for whole in (True, False):
        left = set(rarer)  # labels of which a group may still fit
        while lacking := [label for label in rarer if label in left and taken[label] < each]:
            label = min(lacking, key=lambda label: taken[label])
            if not take(label, whole):
                left.remove(label)
        while taken[commonest] < each and take(commonest, whole):
            pass
    return [prompts[row] for row in sorted(drawn)]
