"""The grid of a sweep: SWEEP.yaml, its cells with their configurations, and how far each is. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue

from experiments.pipeline.graph import continued, in_order, read_inputs, stages_of
from experiments.run.config import AUTO, RunConfig, RunName
from experiments.run.manifest import Manifest
from experiments.run.run_lock import LOG
from extract.errors import UserError
from extract.prompts.dataset import describe
from extract.prompts.sources import DatasetConfig
from extract.record import Record
from extract.shipped import nearest_yaml, resolve_shipped
from extract.store.identity import has_its_shards
from extract.yaml_file import Strict, as_model, read_yaml

MODEL, PROMPTS = "model", "prompts"  # names of the axes beside the keys
OF_THE_GRID = {"model.name": "models", "prompts.path": "prompts", "prompts.datasets": "prompts"}
FILES = (".jsonl", ".json", ".csv", ".parquet")  # of prompts; another name is a public set's
LONGEST = 40  # characters of a value in a cell's name
Resolve = Callable[[str, Sequence[str]], RunConfig]  # a configuration file or a model, and overrides


class SweepConfig(Strict):
    """SWEEP.yaml: every combination of models, prompts and values of keys is a cell."""

    name: RunName
    config: Path | None = None  # of every cell; null: the shipped settings for each model, as `refusal run MODEL` has
    models: tuple[str, ...] = ()  # as `model.name`; none: the configuration's
    prompts: tuple[str | DatasetConfig, ...] = ()  # files, or public sets; none: the configuration's
    keys: dict[str, tuple[JsonValue, ...]] = {}  # values of keys of the configuration, in dotted form
    set: dict[str, JsonValue] = {}  # keys that are the same in all cells
    exclude: tuple[dict[str, JsonValue], ...] = ()  # cells to leave out: {model: …, prompts: …, KEY: …}, or some of it
    budget: str | None = Field(None, min_length=1)  # of each cell, such as 2h; as --budget of `refusal run`


@dataclass(frozen=True)
class Cell:
    """One combination: a run."""

    name: str  # also of its directory
    coordinates: Mapping[str, str | int | float | bool | None]  # by axis; what is no scalar is JSON
    target: str  # a configuration file or a model
    overrides: tuple[str, ...]
    config: RunConfig

    def arguments(self, budget: str | None) -> tuple[str, ...]:
        given = [word for override in self.overrides for word in ("--set", override)]
        return ("run", self.target, *given, *(["--budget", budget] if budget else []))


@dataclass(frozen=True)
class _Value:
    """A value of an axis: how it is named, shown and excluded, and what it overrides."""

    given: JsonValue
    label: str
    overrides: Mapping[str, JsonValue]


def load_sweep(path: Path, overrides: dict[str, JsonValue]) -> SweepConfig:
    """Read SWEEP.yaml, with overrides of its `set`.

    Raises:
        UserError: the file is missing or malformed, or says twice or not at all what a key is.
    """
    shipped = resolve_shipped(path)
    if not shipped.exists() and (near := nearest_yaml(path)):
        raise UserError(f"sweep not found: {path}; did you mean {near}?")
    sweep = as_model(SweepConfig, read_yaml(shipped, "sweep"), path)
    sweep = sweep.model_copy(update={"set": sweep.set | overrides})
    for problem in _problems(sweep):
        raise UserError(f"{path}: {problem}")
    return sweep


def cells_of(sweep: SweepConfig, path: Path, resolve: Resolve) -> list[Cell]:
    """Return the cells of a sweep, in the order of its axes.

    Raises:
        UserError: a key or value does not fit the configuration, or every cell is excluded; names the path.
    """
    axes, cells = _axes(sweep), []
    for combination in product(*axes.values()):
        at = dict(zip(axes, combination, strict=True))
        if any(all(at[axis].given == value for axis, value in out.items()) for out in sweep.exclude):
            continue
        name = "_".join(_part(axis, value, axes) for axis, value in at.items())
        target = str(sweep.config or at[MODEL].given)
        given = {key: value for one in at.values() for key, value in one.overrides.items()}
        if sweep.config is None:
            del given["model.name"]  # the target
        overrides = tuple(f"{key}={json.dumps(value)}" for key, value in ({"name": name} | sweep.set | given).items())
        try:
            config = resolve(target, overrides)
        except UserError as error:
            raise UserError(f"{path}, cell {name}: {error}") from None
        if config.judge == AUTO:  # cells are compared, so that one judge reads them all
            overrides, config = (*overrides, "judge=rules"), config.model_copy(update={"judge": "rules"})
        shown = {
            axis: json.dumps(value.given) if isinstance(value.given, list | dict) else value.given
            for axis, value in at.items()
        }
        cells.append(Cell(name, shown, target, overrides, config))
    if not cells:
        raise UserError(f"{path}: exclude leaves no cell; remove an entry of it")
    return cells


def _problems(sweep: SweepConfig) -> Iterator[str]:
    if not (sweep.models or sweep.prompts or sweep.keys):
        yield "no grid; give models, prompts or keys, such as keys: {seed: [0, 1]}"
    if sweep.config is None and not sweep.models:
        yield "nothing to run; give config, the configuration of every cell, or models"
    for key, values in sweep.keys.items():
        if not values:
            yield f"keys.{key}: expected at least 1 value, such as [0, 1]"
        if key in sweep.set:
            yield f"{key} is both in keys and in set; give it once"
    for name in ("name", "budget"):
        if name in sweep.keys or name in sweep.set:
            yield f"{name} is not a key of cells; it is a key of the sweep itself"
    for key, axis in OF_THE_GRID.items():
        for where in ("keys", "set"):
            if key in getattr(sweep, where) and (getattr(sweep, axis) or where == "keys"):
                yield f"{where}.{key}: give it under {axis}"
    keys = {f"keys.{key}": values for key, values in sweep.keys.items()}
    for axis, given in {"models": sweep.models, "prompts": sweep.prompts, **keys}.items():
        if repeated := [value for value, n in Counter(map(_text, given)).items() if n > 1]:
            yield f"{axis}: {repeated[0]} is given twice"
    for name in [one.name if isinstance(one, DatasetConfig) else one for one in sweep.prompts]:
        if not name.endswith(FILES):
            try:
                describe(name)
            except UserError as error:
                yield f"prompts: {error}; or a file that ends in {', '.join(FILES)}"
    axes = {axis: [one.given for one in values] for axis, values in _axes(sweep).items()}
    for out in sweep.exclude:
        if not out:
            yield f"exclude: an entry names no axis; the axes are {', '.join(axes)}"
        for axis, value in out.items():
            if axis not in axes:
                yield f"exclude: no axis {axis!r}; the axes are {', '.join(axes)}"
            elif value not in axes[axis]:
                yield f"exclude: {_text(value)} is no value of {axis}, which has {', '.join(map(_text, axes[axis]))}"


def _axes(sweep: SweepConfig) -> dict[str, list[_Value]]:
    """Return the values of each axis; those whose labels would be the same have a hash of their own."""
    bare = {name: name.rstrip("/").removeprefix("package:").removesuffix(".gguf") for name in sweep.models}
    models = [_Value(name, _slug(os.path.basename(bare[name])), {"model.name": name}) for name in sweep.models]
    axes = {MODEL: models, PROMPTS: [_prompts(one) for one in sweep.prompts]}
    for key, given in sweep.keys.items():
        axes[key] = [_Value(value, _slug(_text(value)), {key: value}) for value in given]
    for values in axes.values():
        labels = Counter(value.label.lower() for value in values)
        values[:] = [
            replace(one, label=f"{one.label}-{_hash(_text(one.overrides))}") if labels[one.label.lower()] > 1 else one
            for one in values
        ]
    return {name: values for name, values in axes.items() if values}


def _prompts(one: str | DatasetConfig) -> _Value:
    if isinstance(one, str) and one.endswith(FILES):
        return _Value(one, _slug(Path(one).stem), {"prompts.path": one, "prompts.datasets": []})
    given: dict[str, JsonValue] = {"name": one} if isinstance(one, str) else one.model_dump(mode="json")
    name = str(given["name"])
    return _Value(name, _slug(Path(name).stem), {"prompts.path": None, "prompts.datasets": [given]})


def _part(axis: str, value: _Value, axes: Collection[str]) -> str:
    """Return what one axis adds to a cell's name: `two-knobs`, `seed-0`."""
    if axis in (MODEL, PROMPTS):
        return value.label
    last = axis.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == last for other in axes) == 1
    return f"{last if alone else axis}-{value.label}"


def _slug(text: str) -> str:
    """Return a text as a part of a directory's name; a hash follows what had to be cut."""
    slug = re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.") or "empty"
    return slug if len(slug) <= LONGEST else f"{slug[:LONGEST]}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _text(value: object) -> str:
    if isinstance(value, DatasetConfig):
        value = value.model_dump(mode="json")
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


FAILURE = "failure.json"
State = Literal["done", "failed", "left"]


class Ending(Record):
    """How the process of a cell ended; failure.json where it failed, until the cell is begun again."""

    cell: str
    exit_code: int  # negative: the number of a signal
    line: str  # what it said last; empty where nothing went wrong
    node: str


@dataclass(frozen=True)
class CellState:
    """How far a cell is."""

    cell: Cell
    directory: Path
    state: State
    minutes: float | None = None  # of its finished stages
    failure: Ending | None = None

    @property
    def log(self) -> Path:
        return self.directory / LOG


def state_of(cell: Cell, directory: Path, cut_to: float | None = None) -> CellState:
    """Return the state of a cell in its directory; `cut_to` is the minutes of the budget that it is run with."""
    manifest, failure = Manifest(directory / "manifest.json"), directory / FAILURE
    try:
        marks = manifest.read()["stages"]
    except UserError:  # damaged: its process says so
        marks = {}
    minutes = sum(float(mark["seconds"]) for mark in marks.values()) / 60 if marks else None
    if marks and _is_done(cell.config, directory, marks, cut_to):
        return CellState(cell, directory, "done", minutes)
    if failure.is_file():
        return CellState(cell, directory, "failed", minutes, Ending.read(failure))
    return CellState(cell, directory, "left", minutes)


def _is_done(config: RunConfig, directory: Path, marks: Mapping[str, Any], cut_to: float | None) -> bool:
    """Return whether every stage finished with these inputs and its files are there; their bytes are not read."""
    try:
        if cut_to is not None:
            config = continued(config, directory, cut_to) or config
        inputs = read_inputs(config).hashes
    except UserError:  # prompts or a model that are gone: its process says so
        return False
    return all(
        stage.name in marks
        and marks[stage.name]["inputs"] == inputs[stage.name]
        and all(
            (directory / name).is_file() and (not name.endswith(".h5") or has_its_shards(directory / name))
            for name in stage.outputs
            if marks[stage.name]["outputs"].get(name)
        )
        for stage in in_order(stages_of(config), ["report"])
    )
