"""Prompts of a run: its prompt file and the public data sets in its configuration."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

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
    """Sources of the prompts, and the shares of the splits (groups are kept whole).

    The shares sum to 1 at most; if they sum to less, each part gets its share of the sum, and no prompt is left out.
    """

    path: Path | None = None  # a prompt file; it comes before the public sets
    datasets: tuple[DatasetConfig, ...] = ()  # their own splits are used only if every prompt of the run has one
    limit: int | None = Field(None, ge=1)  # most prompts of each label for each question: see `draw`
    contrast: tuple[str, str] | None = None  # two values of the prompts' field `decline`, in place of the two refusals
    limit_dual_use: int | None = Field(None, ge=0)  # most dual_use prompts, which enter no rate and no verdict
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
    """Read the prompts of a configuration.

    Args:
        seed: for drawing prompts where a set has a limit.

    Raises:
        UserError: a source cannot be read, or two prompts have the same id.
    """
    prompts = load_prompts(resolve_shipped(config.path)) if config.path else []
    for given in config.datasets:
        prompts += _set(given, seed)
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise UserError(f"{config.described()}: id {prompt.id!r} occurs twice; name each source once")
        seen.add(prompt.id)
    if config.contrast:
        prompts = contrasted(prompts, config.contrast, config.described())
    drawn = draw(prompts, config.limit, seed) if config.limit else prompts
    return drawn if config.limit_dual_use is None else _few_dual_use(drawn, config.limit_dual_use, seed)


def _few_dual_use(prompts: list[Prompt], most: int, seed: int) -> list[Prompt]:
    """Keep so many prompts of dual use, drawn one by one: the groups that they leave need not be whole without them."""
    rows = [row for row, prompt in enumerate(prompts) if prompt.label == DUAL_USE]
    gone = set(np.random.default_rng(seed).permutation(rows)[most:].tolist())
    return [prompt for row, prompt in enumerate(prompts) if row not in gone]


def draw(prompts: list[Prompt], limit: int, seed: int) -> list[Prompt]:
    """Draw at most `limit` prompts of each label for each question; the order is kept.

    The questions are harmful prompts with their benign twins, uncertain prompts with theirs, and dual use; other benign
    prompts fill what the twins leave of the limit. Intervals count groups, so one unit of each group comes before the
    second of any. A unit is a prompt of each label with a trigger, and of each without: twins, or a whole quadruple.
    """
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups_of(prompts).tolist()):
        members.setdefault(group, []).append(row)
    waiting: list[tuple[tuple[bool, bool, int, int], str, list[int]]] = []
    for place, group in enumerate(np.random.default_rng(seed).permutation(len(members)).tolist()):
        labels = {prompts[row].label for row in members[group]}
        question = next(label for label in (*LABELS[1:], *ALL_LABELS) if label in labels)
        for turn, unit in enumerate(_units(prompts, members[group])):
            without = all(prompts[row].label != question for row in unit)
            waiting.append(((question == "benign", without, turn, place), question, unit))
    taken = Counter[tuple[str, str]]()  # by question and label
    drawn: list[int] = []
    for _, question, unit in sorted(waiting):
        for row in unit:
            label = prompts[row].label
            sharing = [question] if label == "benign" != question else ALL_LABELS  # questions with one limit
            if sum(taken[other, label] for other in sharing) < limit:
                taken[question, label] += 1
                drawn.append(row)
    return [prompts[row] for row in sorted(drawn)]


def _units(prompts: Sequence[Prompt], group: Sequence[int]) -> list[list[int]]:
    """Divide the rows of a group into units: the first of each label with and without a trigger, the second, …."""
    cells: dict[tuple[str, bool], list[int]] = {}
    for row in group:
        cells.setdefault((prompts[row].label, prompts[row].trigger is None), []).append(row)
    return [[row for row in unit if row is not None] for unit in zip_longest(*cells.values())]


def _set(given: DatasetConfig, seed: int) -> list[Prompt]:
    described = given.name.endswith((".yaml", ".yml"))
    name = str(resolve_shipped(Path(given.name))) if described else given.name
    prompts = load_dataset(name, resolve_shipped(given.path) if given.path else None)
    return draw(prompts, given.limit, seed) if given.limit else prompts


LABEL_OF = ("harmful", "uncertain")  # the labels that the two ways take


def contrasted(prompts: Sequence[Prompt], ways: tuple[str, str], described: str) -> list[Prompt]:
    """Label the prompts of the first way harmful and those of the second uncertain; benign ones stay as they are.

    Prompts that are to be declined in another way become dual use, to which nothing is fitted.

    Args:
        ways: two values of the field `decline`.
        described: the source of the prompts, for messages.

    Raises:
        UserError: the two are the same, or no prompt names one of them.
    """
    named = sorted({prompt.decline for prompt in prompts if prompt.decline})
    for way in ways:
        if way not in named:
            known = f"the ways are {', '.join(named)}" if named else "no prompt has this field"
            raise UserError(f"{described}: no prompt has the field 'decline' with the value {way!r}; {known}")
    if ways[0] == ways[1]:
        raise UserError(f"a contrast needs two different ways of declining, got {ways[0]!r} twice")
    return [_labelled(prompt, dict(zip(ways, LABEL_OF, strict=True))) for prompt in prompts]


def _labelled(prompt: Prompt, labels: dict[str, str]) -> Prompt:
    if prompt.decline is None and prompt.label == "benign":
        return prompt
    if prompt.decline not in labels:
        return replace(prompt, label=DUAL_USE)
    label = labels[prompt.decline]
    return replace(prompt, label=label, right_action=USUAL_ACTION[label], acceptable=())


def contrasted_action(action: str | None, prompt: Prompt) -> str | None:
    """Return a completion's action in a contrast: a decline, however worded, is the one of the prompt's way."""
    if action in ("refuse", "abstain") and prompt.label in LABEL_OF:
        return USUAL_ACTION[prompt.label]
    return action


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
