"""`refusal report`: one self-contained HTML page for one run or several, and figures as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.categories.results import CategoryResults
from experiments.charts.points import shape_of
from experiments.charts.specification import Chart, Row, save
from experiments.dials.counterfactuals import read_table
from experiments.dials.figures import DialReadings, calibration_chart, pareto
from experiments.dissociation.text import matrix_chart
from experiments.probing.results import GridRow
from experiments.probing.text import grid_figure
from experiments.report.page.article import ReportedRun, article, scatter_chart
from experiments.report.page.document import document, write_page
from experiments.report.page.payload import payload
from experiments.report.page.scoring_page import comparison_section, short_names
from experiments.report.page.summary import rates_chart
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.triggers.results import ProjectionRows
from experiments.triggers.text import draw_triggers
from experiments.uncertainty.text import reliability_diagram
from extract.prompts.prompt import prompts_hash
from scoring.compare.comparison import compare_runs
from scoring.right_action import load_adjacency
from steering.direction_file import load_directions


def report(inputs: RunInputs) -> None:
    """Write report.html and figures/ from results.json and the run's files."""
    write_report([inputs], inputs.file("report.html"))


def write_report(runs: Sequence[RunInputs], path: Path) -> None:
    """Write one page of finished runs; each later run is compared with the first.

    Raises:
        UserError: a run's files do not belong together, or runs share no labelled prompt with the first.
    """
    records = [RunResults.read(run.file("results.json")) for run in runs]
    names = short_names([str(run.directory.resolve()) for run in runs])
    anchors = [f"run-{i + 1}" for i in range(len(runs))]
    parts = [
        article(_run(inputs, r, name), r, payload(inputs, r), anchor)
        for inputs, r, name, anchor in zip(runs, records, names, anchors, strict=True)
    ]
    if len(runs) > 1:
        compared = compare_runs([run.directory for run in runs], load_adjacency())
        parts.insert(0, comparison_section(names, anchors, records, compared))
    title = f"Refusal report: {', '.join(record.model.name for record in records)}"
    write_page(document(title, parts), path)


def _run(inputs: RunInputs, results: RunResults, name: str) -> ReportedRun:
    """Collect the data of a run that results.json does not hold."""
    reads = _reads(inputs, results)
    stages = Manifest(inputs.file("manifest.json")).read().get("stages", {})
    cells = GridRow.table(inputs.file("probes.parquet"))
    eta = ProjectionRows.read(inputs.file("stages/trigger_projection.json")).rows
    compared = inputs.file("stages/categories.json")
    draw(inputs, results, cells, reads)
    draw_triggers(inputs.directory, eta, results.triggers.patching)
    return ReportedRun(
        name,
        inputs.config.judge,
        max((stage["finished"] for stage in stages.values()), default="unknown")[:19].replace("T", " "),
        prompts_hash(inputs.prompts),
        cells,
        eta,
        reads,
        CategoryResults.read(compared) if compared.is_file() else None,
    )


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


def draw(inputs: RunInputs, results: RunResults, cells: Sequence[GridRow], reads: Mapping[str, DialReadings]) -> None:
    """Write every figure that the run has data for, as PNG and SVG."""
    drawn: dict[str, Chart | None] = {
        "rates": rates_chart(results),
        "matrix": matrix_chart(results.dissociation.matrix),
        "scatter": _scatter(inputs),
    }
    drawn |= {f"grid_{name}": grid_figure(cells, name) for name in results.sites}
    if results.uncertainty is not None and results.uncertainty.applicable:
        drawn["reliability"] = reliability_diagram(results.uncertainty.reliability)
    if results.steer.frontier:
        drawn["pareto"] = pareto(results.steer, results.rates.before, results.rates.after)
    if reads:
        drawn["calibration"] = calibration_chart(reads)
    for name, chart in drawn.items():
        if chart is not None:
            save(chart, inputs.file(f"figures/{name}.png"))


def _scatter(inputs: RunInputs) -> Chart | None:
    """Draw every prompt on the two write directions; None where one is missing."""
    directions = load_directions(inputs.file("directions.safetensors"))
    writes = [directions[name] for kind in KINDS if (name := f"{kind}_write") in directions]
    if len(writes) < len(KINDS):
        return None
    x, y = (write.project(inputs.store.read(write.locus.layer, WRITE_POSITION)).tolist() for write in writes)
    labels = [prompt.label for prompt in inputs.prompts]
    points = zip(x, y, labels, inputs.behaviour.actions, strict=True)
    rows: list[Row] = [
        {"i": i, "x": at_x, "y": at_y, "label": label, "action": shape_of(action)}
        for i, (at_x, at_y, label, action) in enumerate(points)
    ]
    return scatter_chart((writes[0].locus.layer, writes[1].locus.layer), labels, rows)
