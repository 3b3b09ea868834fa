"""`refusal models`, `refusal init`, and what `refusal run` takes for a model, with which settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from experiments.run.config import load_config
from extract.errors import UserError
from extract.model.known_models import known_models
from extract.shipped import ROOT
from refusal.cli.models import MORE, hub_models
from refusal.cli.options import complete_target
from refusal.cli.target import REAL, load_target, settings_for
from tests.support.one_line import one_line, printed


def test_what_ships_is_listed(cli) -> None:
    out = printed(cli("models", "--json"))
    found = {one["target"]: one for one in json.loads(out)}
    zoo = {f"organisms/zoo/{path.parent.name}" for path in (ROOT / "organisms/zoo").glob("*/truth.json")}
    assert {target for target, one in found.items() if one["kind"] == "organism"} == zoo
    weights = ROOT / "organisms/zoo/two-knobs/model.safetensors"
    assert found["organisms/zoo/two-knobs"]["size"] == weights.stat().st_size
    assert found["organisms/taught/smollm2-natural"]["kind"] == "taught"
    llama = found["configs/models/llama-3.1-8b-instruct.yaml"]
    assert llama["size"] == 16_000_000_000
    assert "licence" in llama["needs"]
    assert "licence" not in found["configs/models/qwen3-4b.yaml"]["needs"]
    small = found["smollm2-135m"]
    assert (small["kind"], small["size"], small["memory"], small["licence"]) == ("named", 98362432, 0.5, "Apache-2.0")
    assert small["here"] is not ("models get smollm2-135m" in small["needs"])
    assert "configs/models/qwen2.5-coder-0.5b.yaml" not in found  # its name is listed
    assert "organisms/zoo/two-knobs" in cli("models")[1] == cli("models", "list")[1]


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
    "model", ["organisms/zoo/two-knobs", "OWNER/MODEL", "Qwen/Qwen3-4B", "smollm2-135m",
              "organisms/taught/smollm2-natural"],
)  # fmt: skip
def test_it_writes_the_settings_that_the_model_alone_would_run_with(cli, tmp_path, monkeypatch, model) -> None:
    monkeypatch.chdir(tmp_path)
    out = printed(cli("init", "mine.yaml", "--model", model))
    written = load_config(Path("mine.yaml"))
    assert written == load_target(model, ["name=mine"])[0]
    assert out.splitlines()[0] == "Written: mine.yaml"
    assert out.splitlines()[-1].endswith("run mine.yaml")
    before = Path("mine.yaml").read_text()
    one_line(cli("init", "mine.yaml"), "mine.yaml exists and is not overwritten")
    assert Path("mine.yaml").read_text() == before


def test_it_names_the_file_after_the_model_and_refuses_what_is_none(cli, tmp_path, monkeypatch) -> None:
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


ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def test_an_organism_runs_on_its_own_prompts_as_the_quickstart_does() -> None:
    config, chosen = load_target("organisms/zoo/oblique", [])
    assert "organisms/zoo/oblique/prompts.jsonl" in chosen.described
    assert config.name == "oblique"
    assert config.prompts.path == Path("organisms/zoo/oblique/prompts.jsonl")
    quick = load_config(Path("configs/quickstart.yaml"))
    assert (config.generate, config.dissociate, config.steer) == (quick.generate, quick.dissociate, quick.steer)


@pytest.mark.parametrize(
    ("target", "name"),
    [("OWNER/Some-Model-7B", "Some-Model-7B"), ("package:a-model", "a-model"), ("owner/m.v1", "m.v1")],
)
def test_another_model_runs_on_prompts_for_real_models(target: str, name: str) -> None:
    config, chosen = load_target(target, ["generate.max_new_tokens=7"])
    assert chosen is not None
    assert (config.name, config.model.name) == (name, target)
    assert config.prompts.path == Path("configs/prompts/core.jsonl")
    assert config.generate.max_new_tokens == 7  # --set comes last


def test_a_model_that_has_a_configuration_of_its_own_runs_with_it() -> None:
    config, chosen = load_target("Qwen/Qwen3-4B", [])
    assert chosen.base == Path("configs/models/qwen3-4b.yaml")
    assert config.model.template_args == {"enable_thinking": False}
    assert load_target("google/gemma-2-2b-it", [])[0].model.system == "merge"
    for name in known_models():
        config, chosen = load_target(name, [])
        own = Path(f"configs/models/{name}.yaml")
        assert (config.name, config.model.name, chosen.base) == (name, name, own if own.is_file() else REAL)


def test_a_directory_or_a_gguf_file_is_a_model(tmp_path: Path) -> None:
    model = Path(shutil.copytree(ORGANISM, tmp_path / "my model", ignore=shutil.ignore_patterns("truth.json")))
    config, chosen = load_target(str(model), [])
    assert not chosen.organism  # a prompts.jsonl alone is not an organism's
    assert config.name == "my-model"
    (tmp_path / "weights.q8.gguf").write_bytes(b"GGUF")
    assert load_target(str(tmp_path / "weights.q8.gguf"), [])[0].name == "weights.q8"


def test_a_taught_adapter_runs_with_its_base_on_its_held_out_prompts(tmp_path: Path) -> None:
    taught = "organisms/taught/smollm2-natural"
    config, chosen = load_target(f"{taught}/", [])
    assert chosen is not None
    assert (config.name, config.model.name, config.model.adapter) == ("smollm2-natural", "smollm2-135m", taught)
    assert config.prompts.path == Path(taught, "prompts.jsonl")
    assert chosen.base == Path("configs/real.yaml")  # the shipped configuration that names it
    assert f"{taught} is an adapter of smollm2-135m: its held-out prompts" in chosen.described
    mine = Path(shutil.copytree(ROOT / taught, tmp_path / "mine"))
    config, chosen = load_target(str(mine), ["model.revision=v1"])
    assert chosen.base == Path("configs/models/smollm2-135m.yaml")  # its base's
    assert (config.model.adapter, config.model.revision) == (str(mine), "v1")
    assert config.prompts.path == mine / "prompts.jsonl"
    (mine / "prompts.jsonl").unlink()
    assert load_target(str(mine), [])[0].prompts.path == Path("configs/prompts/core.jsonl")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "the adapter {0} does not name its base model; name the base: refusal run BASE --set model.adapter={0}"),
        ({"base_model_name_or_path": "/gone/base"}, "the adapter {0} has the base '/gone/base', which is not here; "
         "name the base: refusal run BASE --set model.adapter={0}"),
        ([1], "{0}/adapter_config.json is not valid: expected a JSON object"),
    ],
)  # fmt: skip
def test_an_adapter_whose_base_is_not_known_is_one_line(tmp_path: Path, config: object, said: str) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError) as caught:
        load_target(str(tmp_path), [])
    assert str(caught.value) == said.format(tmp_path)


@pytest.mark.parametrize(
    "target", ["quickstart.yaml", "configs/quickstrat.yaml", "configs/quickstart", "nowhere", "a/b/c", "mine/run.yml",
               "docs/prompts.json", "owner/model.gguf"],
)  # fmt: skip
def test_a_mistyped_path_is_no_model(target: str) -> None:
    assert settings_for(target) is None
    with pytest.raises(
        UserError, match=f"^configuration not found: {target}(; did you mean configs/quickstart.yaml.)?$"
    ):
        load_target(target, [])


def test_the_command_line_says_what_it_chose_and_names_the_run_after_the_model(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join((ORGANISM / "prompts.jsonl").read_text().splitlines()[::20]))
    given = ("run", str(ORGANISM), "--dry-run", "--set", f"prompts.path={few}")
    code, out, err = cli(*given)
    assert code == 0, err
    assert "is an organism: its own prompts" in err
    assert "settings of configs/quickstart.yaml" in err
    assert f"in {Path('runs') / 'two-knobs-few'}" in out
    assert len(out.splitlines()) == 11
    assert cli(*given, "--quiet")[2] == ""  # only results and errors
    whole = cli(*given, "--verbose")[1]
    assert "permuted-label null: onset effects" in whole
    assert not (tmp_path / "runs").exists()


def test_a_shell_completes_configurations_organisms_and_local_files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "mine.txt").write_text("")
    assert complete_target("configs/q") == ["configs/quickstart.yaml"]
    assert "organisms/zoo/two-knobs" in complete_target("organisms/zoo/t")
    assert complete_target("mi") == ["mine.yaml"]
