"""A random sample of the requests in a server's log, to be labelled by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.transfer.sets import groups_across
from extract.atomic_write import atomic_path
from extract.errors import UserError
from extract.prompts.prompt import LABELS, Prompt, make_prompt
from extract.prompts.rows import Row, place, read_rows
from probes.statistics.seeds import named_rng

LABEL = "label"
NONE = "none"  # the label of a request that is none of the three, which is left out
MORE = 5  # requests that are drawn for each that is wanted, since those that are nearly the same count once


def sample_of(log: Path) -> Path:
    """Return where the sample of a log lies."""
    return log.with_suffix(".sample.jsonl")


def draw_sample(log: Path, n: int, seed: int, say: Callable[[str], None]) -> Path:
    """Write n requests of a log in random order, each with an empty label; UserError: it is no log.

    Of conversations that begin alike, or nearly, one request is drawn, so that all are independent (`groups_across`). A
    sample that is there already is left as it is, which is said.
    """
    path = sample_of(log)
    if path.is_file():
        say(f"the sample drawn before is used: {path}")
        return path
    lines = [row for _, row in read_rows(log, "requests")]
    if not lines or not all(map(_is_request, lines)):
        raise UserError(f"{log} is no log of requests; it is written by: refusal serve MODEL --dials RUN --log FILE")
    whole = [i for i, row in enumerate(lines) if all(message["content"].strip() for message in row["messages"])]
    drawn = named_rng(seed, "recalibration").permutation(whole)[: MORE * n].tolist()
    begun = [next(one for one in lines[i]["messages"] if one["role"] == "user") for i in drawn]
    groups = groups_across(
        [Prompt(str(i), (first,), "benign", "answer") for i, first in zip(drawn, begun, strict=True)]
    )
    rows = [drawn[k] for k in np.sort(np.unique(groups, return_index=True)[1])][:n]
    with atomic_path(path) as partial:
        partial.touch(0o600)  # what people asked
        with partial.open("w", encoding="utf-8") as file:
            for i in rows:
                file.write(json.dumps({"id": f"request-{i}", LABEL: "", "messages": lines[i]["messages"]}) + "\n")
    return path


def _is_request(row: Row) -> bool:
    messages = row.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return False
    return all(isinstance(one.get("content"), str) for one in messages) and "user" in [
        one.get("role") for one in messages
    ]


def labelled(path: Path) -> list[Prompt]:
    """Return the prompts of a sample; UserError says how many have no label yet, and what the labels are."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if lacking := sum(not row.get(LABEL) for row in rows):
        raise UserError(
            f"{lacking} of {len(rows)} requests in {path} have no label: give each {', '.join(LABELS)}, or {NONE} if "
            "none of them is right, in its field 'label', then run this again"
        )
    kept = [(place(path, k + 1), row) for k, row in enumerate(rows) if row[LABEL] != NONE]
    return [make_prompt(row, where) for where, row in kept]
