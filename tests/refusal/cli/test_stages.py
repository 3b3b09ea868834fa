"""Commands that run stages: cuts without a GPU, files of each rank, contrasts, and `refusal extract` of any prompts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from experiments.run.config import load_config
from extract.shipped import ROOT
from extract.store.activation_store import ActivationStore
from refusal.cli.stages import _of_process
from tests.support.make_small_run import some_prompts
from tests.support.one_line import printed

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


@pytest.mark.slow
def test_a_dry_run_says_that_a_budget_cuts_the_questions_later(cli, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("experiments.pipeline.plan.measured_speed", lambda *given, **_: given[4])
    (tmp_path / "few.jsonl").write_text("\n".join(some_prompts(8)) + "\n")
    few = ("--set", f"prompts.path={tmp_path / 'few.jsonl'}", "--out", str(tmp_path / "run"))
    given = ("run", "configs/quickstart.yaml", "--dry-run", *few)
    out = printed(cli(*given, "--budget", "0.2m"))
    assert "budget          0.2 minutes: the questions are cut to what the answers leave of it" in out
    assert "budget   " not in printed(cli(*given, "--budget", "9000h"))


def test_processes_that_split_layers_write_into_directories_of_their_own(monkeypatch, tmp_path) -> None:
    config = load_config(Path("configs/quickstart.yaml"))
    split = config.model_copy(update={"model": config.model.model_copy(update={
        "loading": config.model.loading.model_copy(update={"tp_plan": "auto"})})})  # fmt: skip
    found = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        found[rank] = [_of_process(tmp_path / "run", one) for one in (split, config)]
    assert found["0"] == [tmp_path / "run", tmp_path / "run"]
    assert found["1"] == [tmp_path / "run.rank1", tmp_path / "run"]


MODEL = ROOT / "organisms" / "zoo" / "instructed"
FEW = ("dissociate.n_onset=12", "dissociate.variants=false",
       "dissociate.positions=[post_last]", "dissociate.n_side_effects=4", "dissociate.n_null_generation=0",
       "extract.layers=[3]")  # fmt: skip


@pytest.mark.slow
def test_refusals_by_policy_and_by_instruction_are_two_mechanisms(cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = [word for key in FEW for word in ("--set", key)]
    said = printed(cli("dissociate", str(MODEL), "--contrast", "policy,instructed", "--out", str(out), *settings))
    assert "normative stands for policy, epistemic for instructed" in said.replace("\n", " ")
    found = json.loads((out / "stages" / "dissociate.json").read_text())
    assert (found["verdict"], found["basis"]) == ("double_dissociation", "reason")
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
def test_what_is_no_contrast_is_one_line_and_leaves_nothing(cli, tmp_path: Path, ways: str, message: str) -> None:
    code, _, error = cli("dissociate", str(MODEL), "--contrast", ways, "--out", str(tmp_path / "run"))
    assert code == 2
    assert message in error.replace("\n", " ")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    rows = [{"id": f"p{i}", "text": f"how do i {word} the door at home?", "label": "benign", "trigger": word}
            for i, word in enumerate(("fix", "move", "open", "hide", "lock", "clean"))]  # fmt: skip
    rows[2]["trigger"] = "kill"
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def arguments(prompts: Path, out: Path, *more: str) -> list[str]:
    return ["extract", "configs/quickstart.yaml", "--set", f"prompts.path={prompts}", "--out", str(out), *more]


def test_one_label_is_enough_and_what_a_reader_must_know_is_said(prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    chosen = ["--set", "extract.site=resid_mid", "--set", "extract.response_tokens=2", "--set", "extract.layers=[1,3]"]
    code, _, err = cli(*arguments(prompts, tmp_path / "run", *chosen))
    assert code == 0, err
    said = "1 of 6 prompts: the trigger is not a word of the last user turn (no trigger_last), for example 'p2'"
    assert said in " ".join(err.split())
    with ActivationStore(tmp_path / "run" / "activations.h5") as store:
        assert (store.site, store.layers) == ("resid_mid", (1, 3))
        assert store.positions[-3:] == ("trigger_last", "response_1", "response_2")
        assert store.present[-3].tolist() == [True, True, False, True, True, True]
        assert [len(said) for said in store.responses] == [2] * 6
    assert cli("store", "verify", str(tmp_path / "run" / "activations.h5"))[0] == 0


@pytest.mark.parametrize("fault", ["lost", "cut", "other numbers"])
def test_a_shard_that_is_gone_or_damaged_is_made_again_alone(fault: str, prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    run = tmp_path / "run"
    two_rows = ["--set", "extract.rows_per_shard=2"]
    assert cli(*arguments(prompts, run, *two_rows))[0] == 0
    store, shards = run / "activations.h5", run / "activations.h5.shards"
    shard, before = shards / "00001-of-00003.h5", store.read_bytes()
    kept = {file: file.stat().st_mtime_ns for file in shards.glob("*.h5") if file != shard}
    whole = shard.read_bytes()
    if fault == "lost":
        shard.unlink()
    elif fault == "cut":
        shard.write_bytes(whole[: len(whole) // 2])
    else:
        shard.write_bytes((shards / "00000-of-00003.h5").read_bytes())
    states = {state["name"]: state["state"] for state in json.loads(cli("status", str(run), "--json")[1])["stages"]}
    assert states["extract"] == "stale"
    code, _, err = cli("store", "info", str(store))
    assert code == 2
    assert "run refusal extract again" in " ".join(err.split())
    if fault != "lost":  # the message names the file to delete; then the command that it asks for works
        assert str(shard) in "".join(err.split())
        shard.unlink()
    code, _, err = cli(*arguments(prompts, run, *two_rows))
    assert code == 0, err
    assert "nothing to do" not in err
    assert store.read_bytes() == before
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert cli("store", "verify", str(store))[0] == 0
    assert "nothing to do" in cli(*arguments(prompts, run, *two_rows))[2]


def test_a_dry_run_counts_what_will_be_stored(prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    def stored(*more: str) -> dict[str, int]:
        out = printed(cli(*arguments(prompts, tmp_path / "run", "--dry-run", "--json", *more)))
        return json.loads(out)

    two = ["--set", "extract.positions=[inst_last,post_last]", "--set", "extract.layers=[0]"]
    assert stored(*two)["independent groups"] == {"benign": 6}  # type: ignore[comparison-overlap]
    shown = cli(*arguments(prompts, tmp_path / "run", "--dry-run"))[1]
    assert "6 (6 benign of 6 independent groups), " in " ".join(shown.split())
    few, more = stored(*two), stored(*two, "--set", "extract.response_tokens=3")
    assert few["activations on disk, bytes"] * 5 == more["activations on disk, bytes"] * 2
    assert (few["generated tokens, at most"], more["generated tokens, at most"]) == (0, 18)
    assert not (tmp_path / "run").exists()


def test_prompts_longer_than_the_context_are_named_and_nothing_is_written(prompts: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    rows[4]["text"] = "how do i lock the door? " * 200
    prompts.write_text("\n".join(map(json.dumps, rows)))
    code, _, err = cli(*arguments(prompts, tmp_path / "run"))
    assert code == 2
    assert "1 of 6 prompts are longer than the model's context, 512 tokens; 'p4' has" in err
    assert not list((tmp_path / "run").glob("*.h5"))
