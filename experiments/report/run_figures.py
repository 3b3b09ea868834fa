"""Draw a run's figures into its directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet

from experiments.dials.tradeoff_figure import pareto
from experiments.probing.grid_figure import grid_figure
from experiments.probing.results import GridRow
from experiments.report.calibration_figure import calibration_diagram
from experiments.report.page.calibration import Read
from experiments.run import charts as figures
from experiments.run.behaviour import KINDS
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.run.manifest import read_json
from experiments.triggers import figures as trigger_figures
from experiments.uncertainty.reliability_figure import reliability_diagram
from steering.direction_file import load_directions


def draw(inputs: RunInputs, results: dict[str, Any], reads: Mapping[str, Read]) -> dict[str, Path]:
    """Write every figure the run has data for; return the PNG files by name."""
    rows = pyarrow.parquet.read_table(inputs.file("probes.parquet")).to_pylist()
    grid = [GridRow.model_validate(row) for row in rows]
    drawn = {"rates": figures.rates(results), "matrix": figures.matrix(results["dissociation"])}
    drawn |= {f"grid_{name}": grid_figure(grid, name) for name in results["sites"]}
    if results.get("uncertainty", {}).get("applicable"):
        drawn["reliability"] = reliability_diagram(results["uncertainty"]["reliability"])
    if results.get("steer", {}).get("frontier"):
        drawn["pareto"] = pareto(results)
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
        figures.save(figure, paths[name])
    rows = read_json(inputs.file("stages/trigger_projection.json"))["rows"]
    paths |= trigger_figures.draw(inputs.directory, rows, results["triggers"]["patching"])
    return paths
