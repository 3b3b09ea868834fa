"""An organism's prompts on another model: found by their directory or by their source."""

import shutil
from pathlib import Path

import pytest

from experiments.run.config import RunConfig, load_config
from experiments.run.organism_prompts import on_another_model, warning
from extract.prompts.sources import read_prompts
from extract.shipped import ROOT

ZOO = "organisms/zoo"


def given(*overrides: str) -> RunConfig:
    return load_config(ROOT / "configs" / "quickstart.yaml", overrides)


def found(config: RunConfig) -> bool:
    return on_another_model(config, read_prompts(config.prompts, config.seed))


@pytest.mark.parametrize("model", ["OWNER/MODEL", f"{ZOO}/shared-knob"])
def test_the_organisms_own_file_on_another_model(model: str) -> None:
    assert found(given(f"model.name={model}"))


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


def test_prompts_for_real_models() -> None:
    assert not found(given("model.name=OWNER/MODEL", "prompts.path=configs/prompts/core.jsonl"))


def test_prompts_of_an_adapter_with_a_planted_mechanism_are_english() -> None:
    adapter = "organisms/taught/smollm2-two-knobs"
    assert (ROOT / adapter / "truth.json").is_file()
    assert not found(given("model.name=OWNER/MODEL", f"prompts.path={adapter}/prompts.jsonl"))


def test_a_missing_model_is_left_to_the_loader() -> None:
    assert not found(given("model.name=./nowhere"))


def test_the_warning_names_the_model_and_the_remedy() -> None:
    text = warning("OWNER/MODEL")
    assert "OWNER/MODEL is not that organism" in text
    assert "prompts.path=configs/prompts/core.jsonl" in text
