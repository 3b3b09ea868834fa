"""SWEEP.yaml: which cells it stands for and what they are called; what it refuses, in one line."""

from pathlib import Path

import pytest
import yaml

from experiments.run.config import load_config
from experiments.sweep.grid import Cell, cells_of, load_sweep
from extract.errors import UserError

BASE = {"name": "many", "config": "configs/quickstart.yaml"}
ONE, OTHER = "organisms/zoo/two-knobs", "organisms/zoo/shared-knob"


@pytest.fixture
def cells(tmp_path: Path):
    def expand(**keys: object) -> list[Cell]:
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump(BASE | keys, sort_keys=False))
        return cells_of(load_sweep(path, {}), path, load_config)

    return expand


def names(found: list[Cell]) -> list[str]:
    return [cell.name for cell in found]


def test_every_combination_is_a_cell_with_the_configuration_that_its_command_gives(cells) -> None:
    found = cells(models=[ONE, OTHER], keys={"seed": [0, 1], "dissociate.margin": [0.1, 0.2]}, set={"steer.band": 0.1})
    assert len(found) == len(set(names(found))) == 8
    assert names(found)[0] == "two-knobs_seed-0_margin-0.1"
    last = found[-1]
    assert last.coordinates == {"model": OTHER, "seed": 1, "dissociate.margin": 0.2}
    assert (last.config.model.name, last.config.seed, last.config.dissociate.margin) == (OTHER, 1, 0.2)
    assert {cell.config.steer.band for cell in found} == {0.1}
    words = last.arguments("2h")
    given = [word for word, before in zip(words[1:], words, strict=False) if before == "--set"]
    assert words[:2] == ("run", BASE["config"])
    assert load_config(Path(words[1]), given) == last.config
    assert words[-2:] == ("--budget", "2h")


def test_names_stay_when_a_grid_grows(cells) -> None:
    small = cells(models=[ONE], keys={"seed": [0]})
    large = cells(models=[OTHER, ONE], keys={"seed": [2, 1, 0]})
    assert set(names(small)) < set(names(large))


def test_values_that_would_have_one_name_or_a_long_one_are_told_apart(cells) -> None:
    found = cells(models=["mine/chat", "yours/chat"], keys={"model.template_args": [{"a": 1}, {"a": 2}]})
    assert len(set(names(found))) == 4
    assert all(name.startswith("chat-") for name in names(found))
    twice = cells(keys={"steer.layers": ["selected", "later"], "dissociate.layers": ["selected"]})
    assert names(twice)[1] == "steer.layers-later_dissociate.layers-selected"
    one, other = names(cells(keys={"steer.system_lines": [["a" * 200], ["a" * 201]]}))
    assert one != other
    assert len(one) < 80


def test_prompts_are_files_or_public_sets(cells) -> None:
    local = {"name": "xstest", "path": "xstest_prompts.csv", "limit": 50}
    file, public = cells(prompts=["configs/prompts/core.jsonl", local])
    assert (file.name, public.name) == ("core", "xstest")
    assert (str(file.config.prompts.path), file.config.prompts.datasets) == ("configs/prompts/core.jsonl", ())
    assert public.config.prompts.path is None
    assert public.config.prompts.datasets[0].limit == 50


def test_excluded_combinations_are_left_out(cells) -> None:
    found = cells(models=[ONE, OTHER], keys={"seed": [0, 1]}, exclude=[{"model": ONE, "seed": 1}])
    assert names(found) == ["two-knobs_seed-0", "shared-knob_seed-0", "shared-knob_seed-1"]


BAD = {
    "unknown key of the sweep": ({"modles": [ONE]}, ["no such key: modles; did you mean models?"]),
    "unknown key of a run": ({"keys": {"steer.bend": [0]}}, ["cell bend-0", "steer.bend", "did you mean steer.band?"]),
    "a value that does not fit": ({"keys": {"seed": ["x"]}}, ["cell seed-x", "expected a whole number"]),
    "no grid": ({}, ["no grid; give models, prompts or keys"]),
    "nothing to run": ({"config": None, "keys": {"seed": [0]}}, ["give config"]),
    "a value twice": ({"keys": {"seed": [1, 1]}}, ["keys.seed: 1 is given twice"]),
    "a model twice": ({"models": [ONE, ONE]}, [f"models: {ONE} is given twice"]),
    "no values": ({"keys": {"seed": []}}, ["keys.seed", "at least 1 value"]),
    "no list": ({"keys": {"seed": 3}}, ["keys.seed: expected a list"]),
    "in both": ({"keys": {"seed": [1]}, "set": {"seed": 2}}, ["seed is both in keys and in set"]),
    "the model as a key": ({"keys": {"model.name": [ONE]}}, ["keys.model.name: give it under models"]),
    "the model twice": ({"models": [ONE], "set": {"model.name": ONE}}, ["set.model.name: give it under models"]),
    "a name": ({"keys": {"name": ["a"]}}, ["name is not a key of cells"]),
    "an unknown set": ({"prompts": ["xtest"]}, ["no data set named 'xtest'", "did you mean xstest?"]),
    "an unknown axis": ({"keys": {"seed": [0]}, "exclude": [{"sead": 0}]}, ["no axis 'sead'", "the axes are seed"]),
    "an unknown value": ({"keys": {"seed": [0]}, "exclude": [{"seed": 5}]}, ["5 is no value of seed", "has 0"]),
    "all excluded": ({"keys": {"seed": [0]}, "exclude": [{"seed": 0}]}, ["exclude leaves no cell"]),
    "a bad name": ({"name": "a/b", "keys": {"seed": [0]}}, ["name: expected letters, digits"]),
    "a model that is none": ({"config": None, "models": ["organisms/zoo/none"]}, ["cell none", "organisms/zoo/none"]),
}


@pytest.mark.parametrize(("keys", "parts"), BAD.values(), ids=BAD)
def test_what_does_not_hold_is_refused_in_one_line(cells, keys: dict, parts: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        cells(**keys)
    message = str(refused.value)
    assert "\n" not in message
    assert "sweep.yaml" in message
    for part in parts:
        assert part in message


def test_without_a_configuration_each_model_has_its_own_settings() -> None:
    from refusal.cli.target import load_target

    path = Path("configs/sweeps/organisms.yaml")
    found = cells_of(load_sweep(path, {}), path, lambda *given: load_target(*given)[0])
    assert {str(cell.config.prompts.path) for cell in found} == {f"{name}/prompts.jsonl" for name in (ONE, OTHER)}
    assert [cell.target for cell in found] == [ONE, ONE, OTHER, OTHER]
    assert not any("model.name" in override for cell in found for override in cell.overrides)
