"""The command line as its user meets it: bad input is one line and exit code 2, and nothing half-written stays."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.pipeline.graph import model_source
from experiments.run.config import load_config
from experiments.run.organism_prompts import on_another_model
from extract.model.loading import load_model
from extract.shipped import CACHE_VARIABLE, ROOT
from refusal.cli.program import program
from tests.support.one_line import one_line, printed
from tests.support.tiny_gguf import tiny_llama, write_gguf

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def prompt_file(path: Path, *lines: str) -> Path:
    rows = [json.loads(line) for line in (ORGANISM / "prompts.jsonl").read_text().splitlines()[:3]]
    path.write_text("\n".join([json.dumps(row) for row in rows] + list(lines)) + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ('{"id": "x", "label": "benign", "text": "  "}', ["line 4", "'text' is empty"]),
        ('{"id": "x", "label": "evil", "text": "a"}', ["line 4", "'label' is 'evil'", "benign, harmful, uncertain"]),
        ('{"id": "request-0000", "label": "benign", "text": "a"}', ["line 4", "is already used on line 1"]),
        ('{"id": "x", "label": "benign"', ["line 4", "not valid JSON"]),
    ],
)
def test_a_bad_prompt_names_line_and_field(cli, tmp_path: Path, line: str, parts: list[str]) -> None:
    path = prompt_file(tmp_path / "prompts.jsonl", line)
    out = tmp_path / "run"
    given = ("run", "configs/quickstart.yaml", "--set", f"prompts.path={path}", "--out", str(out))
    one_line(cli(*given), str(path), *parts)
    assert not out.exists()


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("prompts.path={here}/no.jsonl", ["prompts not found"]),
        ("prompts.path={here}/few.jsonl", ["no prompt labelled uncertain"]),
        ("extract.sight=x", ["extract.sight", "did you mean extract.site?"]),
        ("model.name=./nowhere", ["model not found"]),
    ],
)
def test_a_wrong_value_is_named(cli, tmp_path: Path, override: str, parts: list[str]) -> None:
    prompt_file(tmp_path / "few.jsonl")
    given = ("run", "configs/quickstart.yaml", "--set", override.format(here=tmp_path), "--out", str(tmp_path / "run"))
    one_line(cli(*given), *parts)


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("configs/quikstart.yaml", "configs/quickstart.yaml"),
        ("quickstart", "configs/quickstart.yaml"),
        ("configs/models/gemma.yaml", "configs/models/gemma-2-2b-it.yaml"),
        ("{here}/my-rum.yaml", "{here}/my-run.yaml"),
    ],
)
def test_a_misspelt_configuration_names_the_nearest(cli, tmp_path: Path, given: str, near: str) -> None:
    (tmp_path / "my-run.yaml").write_text("")
    given, near = given.format(here=tmp_path), near.format(here=tmp_path)
    one_line(cli("run", given), f"configuration not found: {given}; did you mean {near}?\n")


@pytest.fixture
def base_model(tmp_path: Path) -> Path:
    model = Path(shutil.copytree(ORGANISM, tmp_path / "base-model"))
    (model / "chat_template.jinja").unlink()
    return model


@pytest.mark.parametrize("also", [[], ["--dry-run"]])
def test_a_model_without_a_chat_template(cli, base_model: Path, tmp_path: Path, also: list[str]) -> None:
    out = tmp_path / "run"
    named = ["run", "configs/quickstart.yaml", "--set", f"model.name={base_model}", "--out", str(out)]
    one_line(cli(*named, *also), f"{base_model} has no chat template", "model.template=plain")
    assert not (out / "activations.h5").exists()
    wrong = "model.template 'plane' is neither plain nor a readable"
    one_line(cli(*named, *also, "--set", "model.template=plane"), wrong)
    one_line(cli("generate", str(base_model), "hi"), "has no chat template", "--template")


def test_a_base_model_is_spoken_to_as_chosen(cli, base_model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[-1].content }}")
    tokens = {}
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join((ORGANISM / "prompts.jsonl").read_text().splitlines()[::10]))
    for template in ("plain", own):
        overrides = ("--set", f"model.name={base_model}", "--set", f"model.template={template}",
                     "--set", f"prompts.path={few}")  # fmt: skip
        out = printed(cli("run", "configs/quickstart.yaml", *overrides, "--dry-run", "--json"))
        tokens[template] = json.loads(out)["prompt tokens"]
    assert tokens["plain"] > tokens[own] > 0
    out = printed(cli("generate", str(base_model), "hi", "--template", "plain", "--max-new-tokens", "2", "--json"))
    assert json.loads(out)[0]["prompt"] == "hi"


@pytest.mark.parametrize(
    ("key", "file"), [("template=own.jinja", "own.jinja"), ("adapter=.", "adapter_model.safetensors")]
)
def test_an_edited_template_or_an_adapter_taught_again_is_another_input(tmp_path, monkeypatch, key, file) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(ROOT / "configs" / "quickstart.yaml", [f"model.{key}"])
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / file).write_text("{{ messages[-1].content }}")
    before = model_source(config)
    assert model_source(config) == before
    (tmp_path / file).write_text("{{ messages[-1].content }} ")
    assert model_source(config) != before


def test_a_gguf_file_is_its_own_input_whether_it_was_opened_or_not(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    file = write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    config = load_config(ROOT / "configs" / "quickstart.yaml", [f"model.name={file}"])
    before = model_source(config)
    assert on_another_model(config, [])
    assert not (tmp_path / "cache").exists()  # nothing was dequantised to find out
    load_model(str(file), device="cpu")
    assert model_source(config) == before
    write_gguf(file, tiny_llama(seed=1))
    assert model_source(config) != before


def test_what_is_not_writable_or_not_there_is_one_line(cli, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    one_line(cli("run", "configs/quickstart.yaml", "--out", str(blocked / "run")), f"cannot write {blocked / 'run'}")
    one_line(cli("report", str(tmp_path)), "not a finished run")
    one_line(cli("organism", "build", "nobody"), "no organism named 'nobody'", "two-knobs")


@pytest.mark.parametrize(
    ("override", "said"),
    [("judge=nope", "no judge named 'nope'"), ("dissociate.directions=no.safetensors", "no file no.safetensors")],
)
def test_a_dry_run_checks_the_files_of_a_configuration(cli, override: str, said: str) -> None:
    one_line(cli("run", "configs/quickstart.yaml", "--set", override, "--dry-run"), said)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from refusal.cli.main import main; sys.argv = ['refusal', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'transformers', 'numpy', 'sklearn', 'h5py', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.stdout.strip().endswith("[]"), done.stdout[-300:]


@pytest.mark.parametrize(
    ("command", "until"),
    [("run", "report"), *((s, s) for s in ("extract", "probe", "dissociate", "triggers", "steer"))],
)
def test_a_staged_command_goes_as_far_as_its_stage(cli, monkeypatch, command, until) -> None:
    asked: list[tuple[tuple, dict]] = []  # type: ignore[type-arg]
    monkeypatch.setattr("refusal.cli.stages.run_command", lambda *given, **how: asked.append((given, how)))
    assert cli(command, "mine.yaml", "--set", "a=1", "--set", "b=2", "--out", "there", "--json")[0] == 0
    assert cli(command, "mine.yaml", "--dry-run")[0] == 0
    (first, how), (second, dry) = asked
    assert first == (Path("mine.yaml"), ["a=1", "b=2"], Path("there"), until)
    assert second == (Path("mine.yaml"), [], None, until)
    assert (how["as_json"], how["dry_run"], dry["as_json"], dry["dry_run"]) == (True, False, False, True)


@pytest.mark.parametrize(
    ("arguments", "command", "said"),
    [
        ("label runs/quickstart", "label", "missing option '--annotator'"),
        ("run", "run", "missing argument 'CONFIG|MODEL'"),
        ("frobnicate", "", "no such command 'frobnicate'"),
        ("store infos x", "store", "no such command 'infos'. Did you mean 'info'?"),
        ("run a.yaml --foo", "run", "no such option: --foo (Possible options: --out)"),
        ("generate M hi --max-new-tokens 0", "generate", "'--max-new-tokens': expected a number of at least 1"),
        ("generate M hi --max-new-tokens many", "generate", "'--max-new-tokens': expected a whole number"),
        (
            "generate M hi --epistemic-threshold 2",
            "generate",
            "'--epistemic-threshold': expected a number of at most 1",
        ),
    ],
)
def test_a_wrong_argument_is_one_line(cli, arguments: str, command: str, said: str) -> None:
    given = one_line(cli(*arguments.split()))
    invalid = "invalid value for " if said.startswith("'") else ""
    assert given == f"{invalid}{said}; see: {' '.join([program(), *command.split()])} --help"


def test_a_command_group_alone_shows_its_commands_and_version_is_printed(cli) -> None:
    for given in ((), ("store",), ("organism",)):
        code, out, err = cli(*given)
        assert (code, err) == (2, "")
        assert ("Commands" if given else "Whole runs") in out
    text = printed(cli("--version"))
    assert text.startswith("refusal-probes ")


@pytest.mark.parametrize("command", ["", "run", "report", "label", "compare", "serve", "store", "store info",
                                     "organism teach", "prompts check"])  # fmt: skip
def test_h_is_help_in_every_command(cli, command: str) -> None:
    short = cli(*command.split(), "-h")
    assert short == cli(*command.split(), "--help")
    assert short[0] == 0
    assert "Usage" in short[1]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.loading.quantization={quant_method: nope}", "model.loading.quantization is not valid"),
        ("extract.layers=[99]", "layer 99 does not exist"),
        ("extract.positions=[foo]", "no prompt has the position 'foo'"),
    ],
)
def test_what_the_model_refuses_leaves_no_run_directory(cli, tmp_path: Path, override: str, said: str) -> None:
    (tmp_path / "few.jsonl").write_text("\n".join((ORGANISM / "prompts.jsonl").read_text().splitlines()[::10]))
    given = ("extract", "configs/quickstart.yaml", "--set", f"prompts.path={tmp_path / 'few.jsonl'}", "--set", override)
    one_line(cli(*given, "--out", str(tmp_path / "run")), said)
    assert not (tmp_path / "run").exists()
    (tmp_path / "kept").mkdir()  # a directory of the user's own stays
    one_line(cli(*given, "--out", str(tmp_path / "kept")), said)
    assert (tmp_path / "kept").exists()
