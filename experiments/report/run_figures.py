"""Draw the figures of a run into its directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.charts.specification import Chart, save
from experiments.dials.tradeoff_figure import pareto
from experiments.probing.grid_figure import grid_figure
from experiments.probing.results import GridRow
from experiments.report import figures
from experiments.report.calibration import DialReadings, calibration_chart
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.triggers import figures as trigger_figures
from experiments.triggers.results import ProjectionRows
from experiments.uncertainty.reliability_figure import reliability_diagram
from steering.direction_file import load_directions


def draw(
    inputs: RunInputs, results: RunResults, cells: Sequence[GridRow], reads: Mapping[str, DialReadings]
) -> dict[str, Path]:
    """Write every figure that the run has data for, as PNG and SVG; return the PNG files by name."""
    dials = bool(results.dials)
    drawn: dict[str, Chart | None] = {
        "rates": figures.rates_chart(results.rates, results.steer.certified, dials=dials),
        "matrix": figures.matrix_chart(results.dissociation.matrix),
    }
    drawn |= {f"grid_{name}": grid_figure(cells, name) for name in results.sites}
    if results.uncertainty is not None and results.uncertainty.applicable:
        drawn["reliability"] = reliability_diagram(results.uncertainty.reliability)
    if results.steer.frontier:
        drawn["pareto"] = pareto(results.steer, results.rates.before, results.rates.after)
    if reads:
        drawn["calibration"] = calibration_chart(reads)
    directions = load_directions(inputs.file("directions.safetensors"))
    writes = {name: d for name, d in directions.items() if name.endswith("_write")}
    if len(writes) == len(KINDS):
        streams = {name: inputs.store.read(d.locus.layer, WRITE_POSITION) for name, d in writes.items()}
        labels = [prompt.label for prompt in inputs.prompts]
        rows = figures.scatter_rows(streams, writes, labels, list(inputs.behaviour.actions))
        at = writes["normative_write"].locus.layer, writes["epistemic_write"].locus.layer
        drawn["scatter"] = figures.scatter_chart(at, labels, rows)
    paths = {name: inputs.file(f"figures/{name}.png") for name, chart in drawn.items() if chart is not None}
    for name, chart in drawn.items():
        if chart is not None:
            save(chart, paths[name])
    eta = ProjectionRows.read(inputs.file("stages/trigger_projection.json")).rows
    paths |= trigger_figures.draw(inputs.directory, eta, results.triggers.patching)
    return paths
