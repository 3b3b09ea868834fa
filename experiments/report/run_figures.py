"""Draw the figures of a run into its directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.dials.tradeoff_figure import pareto
from experiments.probing.grid_figure import grid_figure
from experiments.probing.results import GridRow
from experiments.report import figures
from experiments.report.calibration_figure import calibration_diagram
from experiments.report.page.calibration import DialReadings
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.run.charts import save
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
    drawn = {"rates": figures.rates(results.rates), "matrix": figures.matrix(results.dissociation.matrix)}
    drawn |= {f"grid_{name}": grid_figure(cells, name) for name in results.sites}
    if results.uncertainty is not None and results.uncertainty.applicable:
        drawn["reliability"] = reliability_diagram(results.uncertainty.reliability)
    if results.steer.frontier:
        drawn["pareto"] = pareto(results.steer, results.rates.before, results.rates.after)
    if reads:
        drawn["calibration"] = calibration_diagram(reads)
    directions = load_directions(inputs.file("directions.safetensors"))
    writes = {name: d for name, d in directions.items() if name.endswith("_write")}
    if len(writes) == len(KINDS):
        streams = {name: inputs.store.read(d.locus.layer, WRITE_POSITION) for name, d in writes.items()}
        labels = [prompt.label for prompt in inputs.prompts]
        drawn["scatter"] = figures.scatter(streams, writes, labels, list(inputs.behaviour.actions))
    paths = {name: inputs.file(f"figures/{name}.png") for name in drawn}
    for name, figure in drawn.items():
        save(figure, paths[name])
    rows = ProjectionRows.read(inputs.file("stages/trigger_projection.json")).rows
    paths |= trigger_figures.draw(inputs.directory, rows, results.triggers.patching)
    return paths
