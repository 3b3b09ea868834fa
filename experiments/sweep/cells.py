"""The state of a sweep's cells: done, failed before, or left; found out from files, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.pipeline.graph import continued, in_order, read_inputs, stages_of
from experiments.run.config import RunConfig
from experiments.run.manifest import Manifest
from experiments.run.run_log import NAME as LOG
from experiments.sweep.grid import Cell
from extract.errors import UserError
from extract.record import Record
from extract.store.identity import has_its_shards

FAILURE = "failure.json"
State = Literal["done", "failed", "left"]


class Failure(Record):
    """failure.json of a cell: how its process ended; removed when the cell is begun again."""

    exit_code: int  # negative: the number of a signal
    line: str  # what it said last
    node: str


@dataclass(frozen=True)
class CellState:
    """How far a cell is."""

    cell: Cell
    directory: Path
    state: State
    minutes: float | None = None  # of its finished stages
    failure: Failure | None = None

    @property
    def log(self) -> Path:
        """Where its process writes."""
        return self.directory / LOG


def state_of(cell: Cell, directory: Path, cut_to: float | None = None) -> CellState:
    """Return the state of a cell.

    Args:
        directory: of the cell.
        cut_to: the minutes of the budget that the cell is run with.
    """
    manifest = Manifest(directory / "manifest.json")
    minutes = _minutes(manifest)
    if minutes is not None and _is_done(cell.config, manifest, cut_to):
        return CellState(cell, directory, "done", minutes)
    if (directory / FAILURE).is_file():
        return CellState(cell, directory, "failed", minutes, Failure.read(directory / FAILURE))
    return CellState(cell, directory, "left", minutes)


def states_of(cells: Sequence[Cell], directory: Path, cut_to: float | None = None) -> list[CellState]:
    """Return the state of every cell of a sweep's directory."""
    return [state_of(cell, directory / cell.name, cut_to) for cell in cells]


def _minutes(manifest: Manifest) -> float | None:
    """Return the minutes of the finished stages; None where there are none."""
    try:
        marks = manifest.read()["stages"].values()
    except UserError:  # damaged: its process says so
        return None
    return sum(float(mark["seconds"]) for mark in marks) / 60 if marks else None


def _is_done(config: RunConfig, manifest: Manifest, cut_to: float | None) -> bool:
    """Return whether every stage finished with these inputs and its files are there; their bytes are not read."""
    directory = manifest.path.parent
    try:
        if cut_to is not None:
            config = continued(config, directory, cut_to) or config
        inputs, marks = read_inputs(config).hashes, manifest.read()["stages"]
    except UserError:  # prompts or a model that are gone: its process says so
        return False
    return all(
        stage.name in marks
        and marks[stage.name]["inputs"] == inputs[stage.name]
        and all(_is_there(directory / name) for name in stage.outputs if marks[stage.name]["outputs"].get(name))
        for stage in in_order(stages_of(config), ["report"])
    )


def _is_there(output: Path) -> bool:
    return output.is_file() and (output.suffix != ".h5" or has_its_shards(output))
