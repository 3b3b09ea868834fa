"""An organism's prompts on another model: found by their directory or by their source."""

import shutil
from pathlib import Path

import pytest

from experiments.run.config import RunConfig, load_config
from experiments.run.organism_prompts import on_another_model
from extract.prompts.sources import read_prompts
from extract.shipped import ROOT

ZOO = "organisms/zoo"


def given(*overrides: str) -> RunConfig:
    return load_config(ROOT / "configs" / "quickstart.yaml", overrides)


def found(config: RunConfig) -> bool:
    return on_another_model(config, read_prompts(config.prompts, config.seed))


@pytest.mark.parametrize(
    ("overrides", "another"),
    [
        (["model.name=OWNER/MODEL"], True),  # the organism's own file on another model
        ([f"model.name={ZOO}/shared-knob"], True),
        (["model.name=OWNER/MODEL", "prompts.path=configs/prompts/core.jsonl"], False),
        (["model.name=OWNER/MODEL", "prompts.path=organisms/taught/smollm2-two-knobs/prompts.jsonl"], False),  # English
        (["model.name=./nowhere"], False),  # the loader reports it
    ],
)
def test_an_organism_s_prompts_on_another_model(overrides: list[str], another: bool) -> None:
    assert found(given(*overrides)) == another


def test_the_organism_itself_under_any_path(tmp_path: Path) -> None:
    assert not found(given())
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(ROOT / ZOO / "two-knobs" / "truth.json", copy)
    assert not found(given(f"model.name={copy}"))


def test_a_copy_of_the_prompts_elsewhere(tmp_path: Path) -> None:
    lines = (ROOT / ZOO / "two-knobs" / "prompts.jsonl").read_text().splitlines()
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(lines[:50]) + "\n")
    assert found(given("model.name=OWNER/MODEL", f"prompts.path={path}"))
    assert not found(given(f"prompts.path={path}"))
