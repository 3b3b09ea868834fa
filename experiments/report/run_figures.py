"""Draw a run's figures into its directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet

from experiments.dials.results import SteerResult
from experiments.dials.tradeoff_figure import pareto
from experiments.report.calibration_figure import calibration_diagram
from experiments.report.page.calibration import Read
from experiments.run import charts as figures
from experiments.run.behaviour import KINDS
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.triggers import figures as trigger_figures
from experiments.triggers.results import ProjectionRows, TriggerResults
from experiments.uncertainty.reliability_figure import reliability_diagram
from experiments.uncertainty.results import UncertaintyResult
from steering.direction_file import load_directions


def draw(inputs: RunInputs, results: dict[str, Any], reads: Mapping[str, Read]) -> dict[str, Path]:
    """Write every figure the run has data for; return the PNG files by name."""
    cells = pyarrow.parquet.read_table(inputs.file("probes.parquet")).to_pylist()
    drawn = {"rates": figures.rates(results), "matrix": figures.matrix(results["dissociation"])}
    drawn |= {f"grid_{name}": figures.grid(cells, name) for name in results["sites"]}
    sampled = results.get("uncertainty")
    if sampled and sampled["applicable"]:
        drawn["reliability"] = reliability_diagram(UncertaintyResult.model_validate(sampled).reliability)
    steer = SteerResult.model_validate(results.get("steer", {}))
    if steer.frontier:
        drawn["pareto"] = pareto(steer, results["rates"]["before"], results["rates"]["after"])
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
    rows = ProjectionRows.read(inputs.file("stages/trigger_projection.json")).rows
    patched = TriggerResults.model_validate(results["triggers"]).patching
    paths |= trigger_figures.draw(inputs.directory, rows, patched)
    return paths
