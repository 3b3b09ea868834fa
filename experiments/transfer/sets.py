"""The sets of a transfer matrix: prompts of two classes, both of the set or one of a named counterpart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, Shaped
from pydantic import Field, model_validator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import CountVectorizer

from experiments.run.behaviour import Kind
from extract.errors import UserError
from extract.prompts.dataset import load_dataset
from extract.prompts.groups import linked_groups
from extract.prompts.prompt import Prompt, load_prompts
from extract.prompts.sources import draw
from extract.shipped import resolve_shipped
from extract.yaml_file import Strict, as_model, read_yaml
from probes.statistics.seeds import named_rng
from scoring.evaluation.suite import folder_of_set

SHIPPED = Path("configs/transfer.yaml")
POSITIVE: Mapping[Kind, str] = {"normative": "harmful", "epistemic": "uncertain"}  # the label; the others are benign
SAME = 0.8  # of the words of two prompts, from which on they are near-duplicates
LEAST = 20  # prompts of a class that a set needs
Source = Literal["twins", "own", "different"]


class SetConfig(Strict):
    """One set: a public one by the name that it is listed under, or a prompt file."""

    path: Path | None = None
    counterpart: str | None = None  # the set that its other class is taken from


class TransferConfig(Strict):
    """The sets of a matrix."""

    seed: int = 0
    limit: int | None = Field(150, ge=LEAST)  # most prompts of each label of each set
    sets: dict[str, SetConfig] = Field(min_length=2)
    counterparts: tuple[str, ...] = ()  # public sets that are only taken as counterparts

    @model_validator(mode="after")
    def _counterparts_are_named(self) -> TransferConfig:
        for name, one in self.sets.items():
            if one.counterpart is not None and one.counterpart not in (*self.sets, *self.counterparts):
                raise ValueError(f"sets.{name}: there is no counterpart {one.counterpart!r}; name it in counterparts")
        return self


@dataclass(frozen=True)
class ReadSet:
    """What a read is trained or tested on: `rows` are indices into all prompts, `y` marks the class to be declined."""

    name: str
    kind: Kind
    rows: Int[np.ndarray, " samples"]
    y: Bool[np.ndarray, " samples"]
    source: Source  # twins: most prompts to be declined have a benign one in their group; different: two sets
    counterpart: str | None = None  # that its other class is from


@dataclass(frozen=True)
class TransferPrompts:
    """All prompts, their groups across the sets, and the sets."""

    prompts: tuple[Prompt, ...]
    groups: Int[np.ndarray, " prompts"]
    sets: tuple[ReadSet, ...]


def load_transfer(path: Path) -> TransferConfig:
    """Read the sets of a matrix; UserError: the file is missing or malformed."""
    return as_model(TransferConfig, read_yaml(resolve_shipped(path), "sets of a matrix"), path)


def read_sets(config: TransferConfig, folder: Path | None) -> TransferPrompts:
    """Read the prompts of every set, and divide counterparts among the sets that share them.

    UserError: a set cannot be read, or has too few prompts of a class and no counterpart.
    """
    prompts: list[Prompt] = []
    rows_of: dict[str, np.ndarray] = {}
    for name, one in {**config.sets, **{name: SetConfig() for name in config.counterparts}}.items():
        given = load_prompts(resolve_shipped(one.path)) if one.path else load_dataset(name, folder_of_set(name, folder))
        drawn = draw(given, config.limit, config.seed)
        rows_of[name] = np.arange(len(prompts), len(prompts) + len(drawn))
        prompts += [
            replace(prompt, id=f"{name}/{prompt.id}", pair=prompt.pair and f"{name}/{prompt.pair}") for prompt in drawn
        ]
    groups = groups_across(prompts)
    labels = np.array([prompt.label for prompt in prompts])
    parts = _shared_out(config, rows_of, labels, groups)
    sets = [
        read
        for name, one in config.sets.items()
        for kind in POSITIVE
        if (read := _read_set(name, kind, one, rows_of[name], parts.get(name), labels, groups)) is not None
    ]
    kinds = Counter(one.kind for one in sets)
    if not sets or min(kinds.values()) < 2:
        raise UserError(
            f"a matrix needs two sets of each kind; got {dict(kinds)} (normative: harmful and benign prompts)"
        )
    return TransferPrompts(tuple(prompts), groups, tuple(sets))


def groups_across(prompts: Sequence[Prompt]) -> Int[np.ndarray, " prompts"]:
    """Number the groups of prompts that share a pair, an entity or a template, or most of their words.

    Two prompts share most of their words where these are at least `SAME` of the words of both together (Jaccard 1901).
    """
    words = CountVectorizer(binary=True, token_pattern=r"\w+").fit_transform(
        [" ".join(message["content"] for message in prompt.messages) or "_" for prompt in prompts]
    )
    both, n = (words @ words.T).tocoo(), np.asarray(words.sum(axis=1)).ravel()
    alike = both.data >= SAME * (n[both.row] + n[both.col] - both.data)
    same = csr_array((np.ones(int(alike.sum())), (both.row[alike], both.col[alike])), shape=both.shape)
    _, number = connected_components(same, directed=False)
    entities = [prompt.entity and prompt.entity.split("/")[0] for prompt in prompts]
    return linked_groups([p.pair for p in prompts], entities, [p.template for p in prompts], [str(k) for k in number])


def _shared_out(
    config: TransferConfig,
    rows_of: Mapping[str, np.ndarray],
    labels: Shaped[np.ndarray, " prompts"],
    groups: Shaped[np.ndarray, " prompts"],
) -> dict[str, np.ndarray]:
    """Divide the groups of each counterpart at random among the sets that lack a class."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, one in config.sets.items():
        own = Counter(labels[rows_of[name]].tolist())
        if one.counterpart is not None and min(own["benign"], own["harmful"] + own["uncertain"]) < LEAST:
            users[one.counterpart].append(name)
    parts: dict[str, np.ndarray] = {}
    for counterpart, names in users.items():
        rows = rows_of[counterpart]
        known, code = np.unique(groups[rows], return_inverse=True)
        turn = named_rng(config.seed, "counterpart", counterpart).permutation(len(known)) % len(names)
        parts |= {name: rows[turn[code.reshape(-1)] == k] for k, name in enumerate(names)}
    return parts


def _read_set(
    name: str,
    kind: Kind,
    one: SetConfig,
    own: np.ndarray,
    other: np.ndarray | None,
    labels: Shaped[np.ndarray, " prompts"],
    groups: Shaped[np.ndarray, " prompts"],
) -> ReadSet | None:
    """Return a set's prompts of a kind; None where it has none, or benign ones alone that no counterpart completes."""
    benign, positive = own[labels[own] == "benign"], own[labels[own] == POSITIVE[kind]]
    twins = np.isin(groups[benign], groups[own[labels[own] == "uncertain"]])
    negative = (
        benign[twins] if kind == "epistemic" and twins.any() else benign[~twins] if kind == "normative" else benign
    )
    source: Source = "twins" if len(positive) and np.isin(groups[positive], groups[negative]).mean() > 0.5 else "own"
    alone = not np.isin(labels[own], list(POSITIVE.values())).any()  # benign prompts alone
    if other is not None and len(positive) >= LEAST > len(negative):
        negative, source = other[labels[other] == "benign"], "different"
    elif other is not None and alone and len(negative) >= LEAST:
        positive, source = other[labels[other] == POSITIVE[kind]], "different"
    if not len(positive) or (len(positive) < LEAST and source != "different"):
        return None  # it is of the other kind
    if min(len(positive), len(negative)) < LEAST:
        remedy = "name a counterpart for them" if one.counterpart is None else "raise the limit, or name another one"
        counts = f"{len(positive)} {POSITIVE[kind]} and {len(negative)} benign prompts"
        raise UserError(f"set {name}: {counts} for the {kind} read, and {LEAST} of each are needed; {remedy}")
    rows = np.concatenate([positive, negative])
    named = one.counterpart if source == "different" else None
    return ReadSet(name, kind, rows, np.arange(len(rows)) < len(positive), source, named)
