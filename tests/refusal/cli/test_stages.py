"""Commands that run stages: cuts without a GPU, the files of each rank, and contrasts of two ways of declining."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from experiments.run.config import load_config
from extract.shipped import ROOT
from refusal.cli.stages import _of_process, run_name
from tests.support.make_small_run import some_prompts

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the whole is run")
def test_it_is_cut_to_an_hour_unless_told_otherwise_and_the_cut_is_kept(cli, tmp_path: Path) -> None:
    model = Path(shutil.copytree(ORGANISM, tmp_path / "model", ignore=shutil.ignore_patterns("truth.json")))
    (tmp_path / "few.jsonl").write_text("\n".join(some_prompts(8)) + "\n")
    run = tmp_path / "run"
    given = ("extract", str(model), "--set", f"prompts.path={tmp_path / 'few.jsonl'}", "--out", str(run))

    def cut() -> dict | None:  # type: ignore[type-arg]
        return yaml.safe_load((run / "config.yaml").read_text())["budget"]  # type: ignore[no-any-return]

    code, out, err = cli(*given)
    assert code == 0, err
    said = " ".join(err.split())
    assert "is a model: prompts for real models" in said
    assert "no GPU here, so the run is cut to 1h; --budget none runs the whole" in said
    budget = cut()
    assert budget is not None
    assert budget["minutes"] == 60
    assert str(run / "activations.h5") in out
    _, _, err = cli(*given)
    assert "is continued as its budget of 60 minutes cut it" in " ".join(err.split())
    assert "nothing to do" in err
    code, out, err = cli(*given, "--budget", "none", "--json")
    assert code == 0, err
    assert "cut to" not in err
    assert cut() is None
    assert json.loads(out) == {"written": str(run / "activations.h5")}


def test_processes_that_split_layers_write_into_directories_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config(Path("configs/quickstart.yaml"))
    split = config.model_copy(update={"model": config.model.model_copy(update={
        "loading": config.model.loading.model_copy(update={"tp_plan": "auto"})})})  # fmt: skip
    found = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        found[rank] = [_of_process(tmp_path / "run", one) for one in (split, config)]
    assert found["0"] == [tmp_path / "run", tmp_path / "run"]
    assert found["1"] == [tmp_path / "run.rank1", tmp_path / "run"]


Cli = Callable[..., tuple[int, str, str]]
MODEL = ROOT / "organisms" / "zoo" / "instructed"
FEW = ("dissociate.n_onset=12", "dissociate.variants=false",
       "dissociate.positions=[post_last]", "dissociate.n_side_effects=4", "dissociate.n_null_generation=0",
       "extract.layers=[3]")  # fmt: skip


@pytest.mark.slow
def test_refusals_by_policy_and_by_instruction_are_two_mechanisms(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = [word for key in FEW for word in ("--set", key)]
    code, said, _ = cli("dissociate", str(MODEL), "--contrast", "policy,instructed", "--out", str(out), *settings)
    assert code == 0
    assert "normative stands for policy, epistemic for instructed" in said.replace("\n", " ")
    found = json.loads((out / "stages" / "dissociate.json").read_text())
    assert found["verdict"] == "double_dissociation"
    effects = {(one["ablated"], one["behaviour"]): one["estimate"] for one in found["effects"]}
    for own, other in (("normative", "epistemic"), ("epistemic", "normative")):
        assert effects[own, own] > 0.9
        assert effects[own, other] < 0.1
    rows = [json.loads(line) for line in (out / "completions.jsonl").read_text().splitlines()]
    wanted = {row["id"]: row.get("decline") for row in map(json.loads, (MODEL / "prompts.jsonl").open())}
    read = {(wanted[row["id"]], row["action"]) for row in rows if wanted[row["id"]]}
    assert read == {("policy", "refuse"), ("instructed", "abstain")}
    assert all(row["completion"].startswith("i am not able to help") for row in rows if wanted[row["id"]])


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ("policy", "expected two ways of declining, such as policy,instructed"),
        ("policy,", "expected two ways of declining"),
        ("policy,law", "no prompt has the field 'decline' with the value 'law'; the ways are instructed, policy"),
        ("policy,policy", "a contrast needs two different ways of declining, got 'policy' twice"),
    ],
)
def test_what_is_no_contrast_is_one_line_and_leaves_nothing(cli: Cli, tmp_path: Path, ways: str, message: str) -> None:
    code, _, error = cli("dissociate", str(MODEL), "--contrast", ways, "--out", str(tmp_path / "run"))
    assert code == 2
    assert message in error.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_a_contrast_has_a_run_directory_of_its_own() -> None:
    settings = ["prompts.contrast=[policy, instructed]"]
    config = load_config(ROOT / "configs" / "quickstart.yaml", settings)
    assert run_name(config, settings) == "quickstart-policy-instructed"
