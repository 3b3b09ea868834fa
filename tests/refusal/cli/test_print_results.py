"""What a run prints: the next commands, examples that run when copied, and nothing cut in a narrow terminal."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from experiments.report.results import ModelRecord, RunResults
from extract.prompts.sources import read_prompts
from extract.shipped import ROOT
from refusal.cli import print_results as module
from refusal.cli.main import app
from refusal.cli.options import with_ray_address, wrapped
from refusal.cli.print_results import next_steps, print_stage, print_summary
from refusal.cli.program import program
from refusal.cli.target import load_target
from tests.support.one_line import printed

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def results(*, organism: bool, dials: dict | None = None, **model: object) -> RunResults:  # type: ignore[type-arg]
    record = ModelRecord(name="OWNER/SOME-MODEL", **model)  # type: ignore[arg-type]
    return RunResults.model_construct(organism=organism, dials=dials or {}, model=record)


def script(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "refusal").write_text("#!/bin/sh\n")
    (directory / "refusal").chmod(0o755)
    return directory / "refusal"


def commands(lines: list[str]) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in lines if line.startswith("  ")]


def test_the_program_is_the_running_script_unless_path_finds_it_or_else_python(tmp_path, monkeypatch) -> None:
    running = script(tmp_path / "my env" / "bin")
    monkeypatch.setattr(sys, "argv", [str(running)])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program() == shlex.quote(str(running))
    monkeypatch.chdir(tmp_path)
    assert program() == "'my env/bin/refusal'"
    monkeypatch.chdir(running.parent)
    assert program() == "./refusal"
    monkeypatch.setenv("PATH", str(running.parent))
    assert program() == "refusal"
    monkeypatch.setenv("PATH", str(script(tmp_path / "other").parent))  # another installation comes first
    assert program() == "./refusal"
    monkeypatch.setattr(sys, "argv", [str(ROOT / "refusal" / "__main__.py")])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert program() == f"{tmp_path}/bin/python -m refusal"


def test_help_names_the_program_as_it_is_called(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refusal.cli.main.program", lambda: ".venv/bin/refusal")
    monkeypatch.setenv("COLUMNS", "120")
    _, text, _ = cli("run", "--help")
    assert "Example: .venv/bin/refusal run configs/quickstart.yaml" in text
    assert ".venv/bin/refusal run OWNER/MODEL --budget 2h" in text


def test_after_an_organism_a_real_model_is_run_with_prompts_for_real_models(cli, tmp_path: Path) -> None:
    lines = next_steps(tmp_path, results(organism=True))
    dry, real, other_dry, other = commands(lines)
    assert dry == [*real, "--dry-run"]
    assert other_dry == [*other, "--dry-run"] == ["run", "OWNER/MODEL", "--dry-run"]
    for words in (real, other):
        assert words[0] == "run"
        config = load_target(words[1], [])[0]
        assert config.prompts.path == Path("configs/prompts/core.jsonl")
        assert config.generate.max_new_tokens >= 64
        assert len(read_prompts(config.prompts, config.seed)) > 1000
        assert not Path(config.model.name).exists()
    mine = [word.replace("OWNER/MODEL", str(ORGANISM)) for word in other]
    text = printed(cli(*mine, "--dry-run", "--json", "--out", str(tmp_path / "run")))
    assert json.loads(text)["model"] == str(ORGANISM)
    assert "warning" not in json.loads(text)


def test_after_another_model_no_real_model_is_advised(tmp_path: Path) -> None:
    assert not commands(next_steps(tmp_path, results(organism=False)))
    (tmp_path / "dials.safetensors").touch()
    given = results(organism=False, dials={"normative": 1}, template_args={"enable_thinking": False})
    lines = next_steps(tmp_path, given)
    assert "real model" not in "\n".join(lines)
    (words,) = commands(lines)
    assert words == ["chat", "OWNER/SOME-MODEL", "--dials", str(tmp_path / "dials.safetensors"), "--template-arg",
                     "enable_thinking=false"]  # fmt: skip
    (words,) = commands(next_steps(tmp_path, results(organism=False, dials={"normative": 1}, adapter="taught/it")))
    assert words[-2:] == ["--adapter", "taught/it"]


def test_the_report_is_a_link_and_the_tutorial_is_named_where_it_exists(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "TUTORIAL", tmp_path / "tutorial.ipynb")
    lines = next_steps(tmp_path, results(organism=False))
    assert f"Open it in a browser: {(tmp_path / 'report.html').as_uri()}" in lines
    assert not any("tutorial" in line for line in lines)
    (tmp_path / "tutorial.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    assert "Tutorial notebook: tutorial.ipynb" in next_steps(tmp_path, results(organism=False))


def leaves(command, name: str = "refusal") -> Iterator[tuple[str, object]]:  # type: ignore[no-untyped-def]
    parts = getattr(command, "commands", None)
    if not parts:
        yield name, command
    for key, part in (parts or {}).items():
        yield from leaves(part, f"{name} {key}")


LEAVES = dict(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("name", LEAVES)
def test_every_example_parses_and_names_shipped_files(name: str) -> None:
    found = LEAVES[name]
    examples = re.findall(r"Example: (.*)", found.help)  # type: ignore[attr-defined]
    assert examples
    for example in examples:
        assert example.startswith(f"{name} ") or example == name
        words = with_ray_address(shlex.split(example.removeprefix(name)))
        found.make_context(name, list(words))  # type: ignore[attr-defined]
        for word in words:
            if word.startswith(("configs/", "organisms/")):
                assert (ROOT / word).exists(), word


def test_an_organisms_prompts_on_another_model_are_warned_of_once(cli, tmp_path: Path) -> None:
    lines = (ORGANISM / "prompts.jsonl").read_text().splitlines()[:12]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    shutil.copy(ORGANISM / "truth.json", tmp_path)
    given = ["configs/quickstart.yaml", "--set", f"prompts.path={tmp_path}/prompts.jsonl"]
    for model, times in (("organisms/zoo/shared-knob", 1), ("organisms/zoo/two-knobs", 0)):
        code, _, err = cli("extract", *given, "--set", f"model.name={model}", "--out", f"{tmp_path}/{times}")
        assert code == 0, err
        assert " ".join(err.split()).count("say nothing about this model") == times


WIDTH = 50


@pytest.mark.parametrize("stage", ["probe", "triggers", "dissociate", "steer", "report"])
def test_no_table_cuts_a_cell(small_run, monkeypatch, capsys, stage) -> None:
    def shown(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        print_summary(small_run, False) if stage == "report" else print_stage(small_run, stage, False)
        return capsys.readouterr().out

    narrow, wide = shown(WIDTH), shown(400)
    assert narrow.count("…") == wide.count("…")
    # every letter and digit of the wide form is there, in another order where cells are broken
    assert sorted(re.sub(r"\W", "", narrow)) == sorted(re.sub(r"\W", "", wide))


def test_a_line_is_broken_at_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"assuming    {'several words ' * 9}and a-long-word-{'x' * 60}"
    assert wrapped(line, 12) == line
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    lines = wrapped(line, 12).splitlines()
    assert len(lines) > 3
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert all(one.startswith(" " * 12) for one in lines[1:])
    assert all(len(one) <= WIDTH for one in lines[:-1])
