"""Prompts of a run: its prompt file and the public data sets in its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from pydantic import Field, model_validator

from extract.errors import UserError
from extract.prompts.contrast import contrasted
from extract.prompts.dataset import load_dataset
from extract.prompts.groups import groups_of
from extract.prompts.prompt import ALL_LABELS, DUAL_USE, LABELS, Prompt, load_prompts
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
