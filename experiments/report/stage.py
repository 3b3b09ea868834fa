"""`refusal report`: one self-contained HTML page for one run or several, and figures as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.categories.results import CategoryResults
from experiments.dials.counterfactuals import read_table
from experiments.probing.results import GridRow
from experiments.report.calibration import DialReadings
from experiments.report.page.article import ReportedRun, article
from experiments.report.page.comparison import comparison_section
from experiments.report.page.document import document
from experiments.report.page.payload import payload
from experiments.report.results import RunResults
from experiments.report.run_figures import draw
from experiments.run.behaviour import KINDS
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.triggers.results import ProjectionRows
from extract.atomic_write import atomic_file, make_folder
from extract.prompts.prompt import prompts_hash
from scoring.compare.comparison import compare_runs
from scoring.right_action import load_adjacency


def report(inputs: RunInputs) -> None:
    """Write report.html and figures/ from results.json and the run's files."""
    write_report([inputs], inputs.file("report.html"))


def write_report(runs: Sequence[RunInputs], path: Path) -> None:
    """Write one page of finished runs; each later run is compared with the first.

    Raises:
        UserError: a run's files do not belong together, or runs share no labelled prompt with the first.
    """
    records = [RunResults.read(run.file("results.json")) for run in runs]
    names = _names(runs)
    anchors = [f"run-{i + 1}" for i in range(len(runs))]
    parts = [
        article(_run(inputs, r, name), r, payload(inputs, r), anchor)
        for inputs, r, name, anchor in zip(runs, records, names, anchors, strict=True)
    ]
    if len(runs) > 1:
        compared = compare_runs([run.directory for run in runs], load_adjacency())
        parts.insert(0, comparison_section(names, anchors, records, compared))
    title = f"Refusal report: {', '.join(record.model.name for record in records)}"
    make_folder(path.parent)
    with atomic_file(path) as sink:
        sink.write(document(title, parts).encode("utf-8", "backslashreplace"))


def _names(runs: Sequence[RunInputs]) -> list[str]:
    """Return the names of the runs: their directories' names, or their paths where two names are equal."""
    short = [run.directory.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.directory) for run in runs]


def _run(inputs: RunInputs, results: RunResults, name: str) -> ReportedRun:
    """Collect the data of a run that results.json does not hold."""
    reads = _reads(inputs, results)
    stages = Manifest(inputs.file("manifest.json")).read().get("stages", {})
    cells = GridRow.table(inputs.file("probes.parquet"))
    draw(inputs, results, cells, reads)
    return ReportedRun(
        name,
        inputs.config.judge,
        max((stage["finished"] for stage in stages.values()), default="unknown")[:19].replace("T", " "),
        prompts_hash(inputs.prompts),
        cells,
        ProjectionRows.read(inputs.file("stages/trigger_projection.json")).rows,
        reads,
        _categories(inputs),
    )


def _categories(inputs: RunInputs) -> CategoryResults | None:
    """Return the verdicts on categories, if `refusal categories` has judged this run."""
    path = inputs.file("stages/categories.json")
    return CategoryResults.read(path) if path.is_file() else None


def _reads(inputs: RunInputs, results: RunResults) -> dict[str, DialReadings]:
    """Return the probabilities of each dial on test prompts, with labels and groups."""
    if not results.dials:
        return {}
    table, corpus = read_table(inputs.file("table.jsonl")), inputs.corpus
    test = np.flatnonzero(corpus.rated & corpus.within("test"))
    labels = dict(zip(KINDS, (corpus.harmful, corpus.uncertain), strict=True))
    return {
        kind: DialReadings(probability[test], labels[kind][test], corpus.groups[test])
        for kind, probability in zip(table.dials, table.probability, strict=True)
    }
