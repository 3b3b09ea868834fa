"""`refusal report`: one self-contained HTML page, of one run or of several, and the same figures as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from experiments.dials.counterfactuals import read_table
from experiments.report.page.article import article
from experiments.report.page.calibration import Read
from experiments.report.page.comparison import comparison_section
from experiments.report.page.document import document
from experiments.report.page.payload import payload
from experiments.report.run_figures import draw
from experiments.responses.behaviour import KINDS
from experiments.responses.context import Context
from experiments.run.manifest import Manifest, read_json
from extract.atomic_write import atomic_file
from extract.prompts.prompt import prompts_hash
from scoring.compare.comparison import compare
from scoring.right_action import load_adjacency


def report(context: Context) -> None:
    """Write report.html and figures/ from results.json and the run's files."""
    write_report([context], context.file("report.html"))


def write_report(contexts: Sequence[Context], path: Path) -> None:
    """Write one page of finished runs; several are compared with the first.

    Raises:
        UserError: a run's files do not belong together, or runs share no labelled prompt with the first.
    """
    records = [read_json(context.file("results.json")) for context in contexts]
    names = _names(contexts)
    parts = [article(_run(c, r, name), r, payload(c, r)) for c, r, name in zip(contexts, records, names, strict=True)]
    if len(contexts) > 1:
        compared = compare([context.directory for context in contexts], load_adjacency())
        parts.insert(0, comparison_section(names, records, compared))
    title = f"Refusal report: {', '.join(record['model']['name'] for record in records)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as sink:
        sink.write(document(title, parts).encode("utf-8", "backslashreplace"))


def _names(contexts: Sequence[Context]) -> list[str]:
    """Return what to call the runs: their directories' names, whole paths where these are alike."""
    short = [context.directory.resolve().name for context in contexts]
    return short if len(set(short)) == len(short) else [str(context.directory) for context in contexts]


def _run(context: Context, results: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what the page shows of a run beside its results."""
    reads = _reads(context, results)
    stages = Manifest(context.file("manifest.json")).read().get("stages", {})
    return {
        "name": name,
        "judge": context.config.judge,
        "finished": max((stage["finished"] for stage in stages.values()), default="unknown")[:19].replace("T", " "),
        "prompts_hash": prompts_hash(context.prompts),
        "cells": pyarrow.parquet.read_table(context.file("probes.parquet")).to_pylist(),
        "eta": read_json(context.file("stages/trigger_projection.json"))["rows"],
        "figures": draw(context, results, reads),
        "reads": reads,
    }


def _reads(context: Context, results: dict[str, Any]) -> dict[str, Read]:
    """Return what each dial read of test prompts."""
    if not results["dials"]:
        return {}
    table, corpus = read_table(context.file("table.jsonl")), context.corpus
    test = np.flatnonzero(corpus.within("test"))
    labels = dict(zip(KINDS, (corpus.harmful, corpus.uncertain), strict=True))
    return {
        kind: Read(probability[test], labels[kind][test], corpus.groups[test])
        for kind, probability in zip(table.dials, table.probability, strict=True)
    }
