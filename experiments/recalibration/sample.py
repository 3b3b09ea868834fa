"""A random sample of the requests in a server's log, to be labelled by hand."""

from __future__ import annotations

import json
from pathlib import Path

from extract.atomic_write import write_jsonl
from extract.errors import UserError
from extract.prompts.prompt import LABELS, Prompt, load_prompts
from extract.prompts.rows import read_rows
from probes.statistics.seeds import named_rng

LABEL = "label"


def sample_of(log: Path) -> Path:
    """Return where the sample of a log lies."""
    return log.with_suffix(".sample.jsonl")


def draw_sample(log: Path, n: int, seed: int) -> Path:
    """Write n requests of a log, or all, in random order, each with an empty label; UserError: it is no log.

    A sample that is there already is left as it is.
    """
    path = sample_of(log)
    if path.is_file():
        return path
    lines = [row for _, row in read_rows(log, "requests")]
    if not lines or any("messages" not in row for row in lines):
        raise UserError(f"{log} is no log of requests; it is written by: refusal serve MODEL --dials RUN --log FILE")
    order = named_rng(seed, "recalibration").permutation(len(lines))[:n].tolist()
    rows = [{"id": f"request-{i}", LABEL: "", "messages": lines[i]["messages"]} for i in order]
    write_jsonl(path, rows)
    return path


def labelled(path: Path) -> list[Prompt]:
    """Return the prompts of a sample; UserError says how many have no label yet, and what the labels are."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if lacking := sum(not row.get(LABEL) for row in rows):
        raise UserError(
            f"{lacking} of {len(rows)} requests in {path} have no label: give each {', '.join(LABELS[:-1])} or "
            f"{LABELS[-1]} in its field 'label', then run this again"
        )
    return load_prompts(path)
