"""`refusal report`: one self-contained HTML page for one run or several, and figures as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.categories.results import CategoryResults
from experiments.charts.points import shape_of
from experiments.charts.specification import Chart, Row, save
from experiments.dials.text import DialReadings, calibration_chart, pareto
from experiments.dissociation.text import matrix_chart
from experiments.probing.results import GridRow
from experiments.probing.text import grid_figure
from experiments.report.page.article import ReportedRun, article, scatter_chart
from experiments.report.page.document import document, write_page
from experiments.report.page.payload import Payload, payload
from experiments.report.page.scoring_page import comparison_section, short_names
from experiments.report.page.summary import rates_chart
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.triggers.results import ProjectionRows
from experiments.triggers.text import draw_triggers
from experiments.uncertainty.text import reliability_diagram
from extract.prompts.prompt import prompts_hash
from scoring.compare.comparison import compare_runs
from scoring.right_action import load_adjacency


def report(inputs: RunInputs) -> None:
    """Write report.html and figures/ from results.json and the run's files."""
    write_report([inputs], inputs.file("report.html"))


def write_report(runs: Sequence[RunInputs], path: Path) -> None:
    """Write one page of finished runs, each compared with the first; UserError: they share no labelled prompt."""
    records = [RunResults.read(run.file("results.json")) for run in runs]
    names = short_names([str(run.directory.resolve()) for run in runs])
    anchors = [f"run-{i + 1}" for i in range(len(runs))]
    parts = []
    for inputs, results, name, anchor in zip(runs, records, names, anchors, strict=True):
        data = payload(inputs, results)
        run = _run(inputs, name, data)
        draw(inputs, results, run, data)
        parts.append(article(run, results, data, anchor))
    if len(runs) > 1:
        compared = compare_runs([run.directory for run in runs], load_adjacency())
        parts.insert(0, comparison_section(names, anchors, records, compared))
    title = f"Refusal report: {', '.join(record.model.name for record in records)}"
    write_page(document(title, parts), path)


def _run(inputs: RunInputs, name: str, data: Payload) -> ReportedRun:
    """Collect the data of a run that results.json does not hold."""
    stages = Manifest(inputs.file("manifest.json")).read().get("stages", {})
    compared, corpus = inputs.file("stages/categories.json"), inputs.corpus
    test = np.flatnonzero(corpus.rated & corpus.within("test"))
    labels = dict(zip(KINDS, (corpus.harmful, corpus.uncertain), strict=True))
    reads = {
        kind: DialReadings(np.array(probability)[test], labels[kind][test], corpus.groups[test])
        for kind, probability in zip(data["dials"], data.get("read", []), strict=True)
    }
    return ReportedRun(
        name,
        max((stage["finished"] for stage in stages.values()), default="unknown")[:19].replace("T", " "),
        prompts_hash(inputs.reading.prompts),
        GridRow.table(inputs.file("probes.parquet")),
        ProjectionRows.read(inputs.file("stages/trigger_projection.json")).rows,
        reads,
        CategoryResults.read(compared) if compared.is_file() else None,
    )


def draw(inputs: RunInputs, results: RunResults, run: ReportedRun, data: Payload) -> None:
    """Write every figure that the run has data for, as PNG and SVG."""
    drawn: dict[str, Chart | None] = {
        "rates": rates_chart(results),
        "matrix": matrix_chart(results.dissociation.matrix),
        "scatter": _scatter(inputs, data),
    }
    drawn |= {f"grid_{name}": grid_figure(run.cells, name) for name in results.sites}
    if results.uncertainty is not None and results.uncertainty.applicable:
        drawn["reliability"] = reliability_diagram(results.uncertainty.reliability)
    if results.steer.frontier:
        drawn["pareto"] = pareto(results.steer, results.rates.before, results.rates.after)
    if run.reads:
        drawn["calibration"] = calibration_chart(run.reads)
    for name, chart in drawn.items():
        if chart is not None:
            save(chart, inputs.file(f"figures/{name}.png"))
    draw_triggers(inputs.directory, run.eta, results.triggers.patching)


def _scatter(inputs: RunInputs, data: Payload) -> Chart | None:
    """Draw every prompt on the two write directions; None where one is missing."""
    prompts, labels = data["prompts"], data["labels"]
    if "x" not in prompts or "y" not in prompts:
        return None
    points = zip(prompts["x"], prompts["y"], prompts["label"], inputs.behaviour.actions, strict=True)
    rows: list[Row] = [
        {"i": i, "x": x, "y": y, "label": labels[label], "action": shape_of(action)}
        for i, (x, y, label, action) in enumerate(points)
    ]
    return scatter_chart((prompts["x_layer"], prompts["y_layer"]), labels, rows)
