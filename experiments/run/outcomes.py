"""outcomes.parquet: what each prompt got under each condition and intervention; every judgement counts its rows.

It is a folder with one file for each measuring stage, so that a stage that runs again replaces its own rows only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.run.completion_file import Completion, is_right
from extract.atomic_write import atomic_path, make_folder
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from probes.statistics.intervals import Estimate, effective_groups, grouped_mean, tango
from scoring.rates import grouped_rate

PLAIN = "plain"  # condition: the prompt as the run's file has it
NOTHING = "none"  # intervention: the model as it is
Key = tuple[str, str]  # condition and intervention


@dataclass(frozen=True, kw_only=True)
class Share(Estimate):
    """A share of prompts, or a mean over tokens, and its paired change against a baseline."""

    unjudged: int | None = None
    n_tokens: int | None = None
    change: Estimate | None = None


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of some prompts under one condition and one intervention.

    `onset` is infinite where the log-odds were measured and are not finite, because an intervention breaks the model.
    """

    rows: Int[np.ndarray, " n"]  # of the run's prompts, ascending
    action: Shaped[np.ndarray, " n"]  # object: names, None where unjudged
    right: Bool[np.ndarray, " n"]  # the known answer is stated
    probability: Float[np.ndarray, " n"]  # that a dial, or the intervention's own classifier, reads; NaN: not read
    onset: Float[np.ndarray, " n"]  # log-odds of opening as the plain decline, nats; NaN: not measured, inf: not finite
    tokens: Int[np.ndarray, " n"]  # of the completion; -1: unknown
    completion: Shaped[np.ndarray, " n"]  # object: texts, None where only the action is known

    @classmethod
    def of(
        cls,
        rows: Int[np.ndarray, " n"],
        action: Sequence[str | None] | Shaped[np.ndarray, " n"],
        right: Bool[np.ndarray, " n"] | None = None,
        tokens: Sequence[int] | None = None,
        probability: Float[np.ndarray, " n"] | None = None,
        completion: Sequence[str | None] | None = None,
    ) -> Self:
        """Return outcomes; what is not given is not known. Rows may come in any order."""
        order, n = np.argsort(rows), len(rows)
        given = action, [None] * n if completion is None else completion
        actions, texts = (np.array([*each, None], dtype=object)[:-1] for each in given)  # objects, also of no rows
        unknown = np.full(n, np.nan)
        return cls(
            np.asarray(rows, dtype=int)[order],
            actions[order],
            np.zeros(n, dtype=bool) if right is None else np.asarray(right, dtype=bool)[order],
            unknown if probability is None else np.asarray(probability, dtype=float)[order],
            unknown,
            np.full(n, -1) if tokens is None else np.asarray(tokens, dtype=int)[order],
            texts[order],
        )

    @classmethod
    def completed(
        cls,
        rows: Int[np.ndarray, " n"],
        completions: Sequence[Completion],
        prompts: Sequence[Prompt],
        probability: Float[np.ndarray, " n"] | None = None,
    ) -> Self:
        """Return the outcomes of completions, one for each row of the run's prompts."""
        right = [is_right(one, prompts[row]) for row, one in zip(rows, completions, strict=True)]
        actions, tokens = [one.action for one in completions], [len(one.token_ids) for one in completions]
        texts = [one.completion for one in completions]
        return cls.of(np.asarray(rows), actions, np.array(right, dtype=bool), tokens, probability, texts)

    @property
    def judged(self) -> Bool[np.ndarray, " n"]:
        """Which prompts have an action."""
        return np.array([action is not None for action in self.action], dtype=bool)

    def among(self, rows: Int[np.ndarray, " m"]) -> Self:
        """Return the outcomes of some of the prompts, in the order given; KeyError: a prompt has none."""
        place = np.searchsorted(self.rows, rows)
        if (place >= len(self.rows)).any() or (self.rows[place] != rows).any():
            raise KeyError(f"{len(set(np.asarray(rows).tolist()) - set(self.rows.tolist()))} prompts have no outcome")
        return replace(self, **{name: column[place] for name, column in vars(self).items()})

    def hits(self, counted: Collection[str] | None) -> Bool[np.ndarray, " n"]:
        """Return which actions are among those counted; None: which prompts are answered right."""
        return self.right if counted is None else np.array([did in counted for did in self.action], dtype=bool)


def joined(parts: Sequence[Mapping[Key, Outcomes]]) -> dict[Key, Outcomes]:
    """Return the outcomes of parts that hold different prompts as one table."""
    table: dict[Key, Outcomes] = {}
    for key in dict.fromkeys(key for part in parts for key in part):
        each = [vars(part[key]) for part in parts if key in part]
        columns = {name: np.concatenate([of[name] for of in each]) for name in each[0]}
        order = np.argsort(columns["rows"])
        table[key] = Outcomes(**{name: column[order] for name, column in columns.items()})
    return table


def acted(actions: Shaped[np.ndarray, " n"]) -> Outcomes:
    """Return actions as outcomes of which nothing else is known."""
    return Outcomes.of(np.arange(len(actions)), actions)


def share(
    now: Outcomes,
    counted: Collection[str] | None,
    groups: Shaped[np.ndarray, " n"],
    before: Outcomes | None = None,
) -> Share:
    """Return the share of judged prompts that act as counted, and its paired change on prompts judged both times.

    `counted` are actions; None: the known answer is stated. Intervals are over groups.
    """
    judged = now.judged
    observed = Share.of(grouped_rate(now.hits(counted)[judged], groups[judged]), unjudged=int((~judged).sum()))
    if before is None:
        return observed
    both = judged & before.judged
    change = tango(now.hits(counted)[both], before.hits(counted)[both], effective_groups(groups[both]))
    return replace(observed, change=change.counted(int(both.sum()), groups[both]))


def contrast(a: Outcomes, b: Outcomes, counted: Collection[str], groups: Shaped[np.ndarray, " n"]) -> Estimate:
    """Return the paired difference a - b of the shares that act as counted; unjudged prompts do not."""
    return tango(a.hits(counted), b.hits(counted), effective_groups(groups)).counted(len(groups), groups)


def mean(
    nats: list[Float[np.ndarray, " tokens"]],
    groups: Shaped[np.ndarray, " texts"],
    before: list[Float[np.ndarray, " tokens"]] | None = None,
) -> Share:
    """Return the mean over all tokens of some texts, in nats, and its paired change; intervals are over groups.

    If a value is not finite (an intervention may break the model), the estimate is NaN, with the n that was tried.
    """
    owner = np.repeat(groups, [len(each) for each in nats])
    values = np.concatenate(nats) if nats else np.zeros(0)
    share = Share.of(_mean(values, owner, 0.0).counted(len(nats), groups), n_tokens=len(values))
    if before is None:
        return share
    moved = values - np.concatenate(before) if before else values
    return replace(share, change=_mean(moved, owner, -np.inf).counted(len(nats), groups))


def _mean(values: np.ndarray, owner: np.ndarray, least: float) -> Estimate:
    if len(values) and np.isfinite(values).all():
        return grouped_mean(values, owner, least=least)
    return Estimate(float("nan"), least, float("inf"))


def write_outcomes(path: Path, prompts: Sequence[str], table: Mapping[Key, Outcomes]) -> None:
    """Write the rows of one stage, by the ids of the run's prompts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    make_folder(path.parent)
    names = np.array(prompts, dtype=object)
    types = dict.fromkeys(("prompt", "condition", "intervention", "action"), pa.string()) | {"right": pa.bool_()}
    types |= {"probability": pa.float64(), "onset": pa.float64(), "tokens": pa.int32(), "completion": pa.string()}
    schema = pa.schema(types)
    with atomic_path(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for (condition, intervention), outcomes in table.items():
            columns = {
                "prompt": names[outcomes.rows],
                "condition": [condition] * len(outcomes.rows),
                "intervention": [intervention] * len(outcomes.rows),
                "action": outcomes.action,
                "right": outcomes.right,
                "probability": pa.array(outcomes.probability, mask=np.isnan(outcomes.probability)),
                "onset": pa.array(outcomes.onset, mask=np.isnan(outcomes.onset)),
                "tokens": pa.array(outcomes.tokens, pa.int32(), mask=outcomes.tokens < 0),
                "completion": outcomes.completion,
            }
            writer.write_table(pa.table(columns, schema=schema))


def read_outcomes(path: Path, prompts: Sequence[str]) -> dict[Key, Outcomes]:
    """Read the rows of one stage; UserError: the file is missing, or holds other prompts."""
    import pyarrow.parquet as pq

    place, by_key = {name: row for row, name in enumerate(prompts)}, dict[Key, Outcomes]()
    try:
        file = pq.ParquetFile(path)
    except (OSError, ValueError) as error:  # the latter: it was cut
        raise UserError(f"{path} cannot be read ({error}); run again") from None
    with file:
        for group in range(file.num_row_groups):
            columns = file.read_row_group(group).to_pydict()
            if unknown := set(columns["prompt"]) - place.keys():
                raise UserError(f"{path} holds other prompts, such as {min(unknown)!r}; choose another directory")
            rows = np.array([place[name] for name in columns["prompt"]], dtype=int)
            outcomes = Outcomes.of(
                rows,
                columns["action"],
                np.array(columns["right"], dtype=bool),
                [-1 if n is None else n for n in columns["tokens"]],
                np.array(columns["probability"], dtype=float),
                columns.get("completion"),  # a run of an earlier version has none
            )
            onset = np.array(columns["onset"], dtype=float)[np.argsort(rows)]
            if len(rows):
                by_key[columns["condition"][0], columns["intervention"][0]] = replace(outcomes, onset=onset)
    return by_key
