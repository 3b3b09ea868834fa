"""`refusal uncertainty` on the shipped organism, whose knowledge is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.pipeline.graph import STAGES, stages_of
from experiments.pipeline.stages import run
from experiments.run.config import load_config
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import print_uncertainty, uncertainty_lines
from extract.progress import Reporter
from extract.prompts.prompt import load_prompts
from extract.shipped import ROOT
from tests.conftest import ORGANISM

pytestmark = pytest.mark.slow

QUIET = Reporter(quiet=True)
SET = ("uncertainty.samples=5", "generate.max_new_tokens=18")


def given(path: Path, *more: str) -> list[str]:
    return [f"prompts.path={path}", f"model.name={ORGANISM}", *SET, *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions about known and unknown people, and a few requests, which are not sampled."""
    folder = tmp_path_factory.mktemp("uncertainty")
    rows = [json.loads(line) for line in (ORGANISM / "prompts.jsonl").read_text().splitlines()]
    people = [row for row in rows if "entity" in row]
    chosen = [row for row in people if row["pair"] in {r["pair"] for r in people[::30]}]
    chosen += [row for row in rows if "entity" not in row][::11]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, chosen)))
    config = load_config(Path("configs/quickstart.yaml"), given(folder / "prompts.jsonl"))
    assert run(config, folder / "run", until="uncertainty", reporter=QUIET) == ["respond", "uncertainty"]
    return folder


@pytest.fixture(scope="module")
def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run/stages/uncertainty.json").read_text())  # type: ignore[no-any-return]


def test_labels_from_the_model_agree_with_what_it_is_known_to_know(record: dict[str, Any]) -> None:
    known = record["knowledge"]
    assert known["agreement_with_file"]["estimate"] >= 0.95
    assert known["with_known_answer"]["estimate"] >= 0.95
    assert known["labelled"]["n"] == record["questions"] >= 40
    assert set(known["file_to_model"]["uncertain"]) <= {"uncertain", "left_out"}


def test_inventions_told_every_time_are_no_less_sure_than_facts(record: dict[str, Any]) -> None:
    """The organism invents by rule, so that sampling cannot tell: a blind spot that must show, not vanish."""
    low = record["populations"]["committed"]["measures"]["semantic_entropy"]["auroc_ci"][0]
    assert low < 0.6
    assert record["knowledge"]["by_samples_alone"]["estimate"] < 0.9
    assert record["reliability"]["committed"]["gap"]["low"] > 0  # surer than right
    assert record["reliability"]["known_answer"]["gap"]["high"] < record["reliability"]["committed"]["gap"]["high"]


def test_saying_so_goes_with_being_unknowable(record: dict[str, Any]) -> None:
    hedging = record["populations"]["all"]["measures"]["hedging"]
    assert hedging["auroc_ci"][0] > 0.5
    assert hedging["p_adjusted"] <= 0.05


def test_each_question_has_its_line(folder: Path, record: dict[str, Any]) -> None:
    rows = [json.loads(line) for line in (folder / "run/uncertainty.jsonl").read_text().splitlines()]
    assert len(rows) == record["questions"]
    for row in rows:
        assert len(row["samples"]) == 5 == sum(row["clusters"])
        assert all(sample["log_probability"] <= 0 for sample in row["samples"])
        assert 0 <= row["agreement"] <= 1
        assert (row["correct"] is None) == (row["label"] == "uncertain")
        if row["action"] == "abstain":
            assert row["hedging"] == 1
    assert (folder / "run/figures/reliability.png").stat().st_size > 5000


def test_the_prompts_it_writes_can_be_run_on(folder: Path, record: dict[str, Any]) -> None:
    before = load_prompts(folder / "prompts.jsonl")
    after = {prompt.id: prompt for prompt in load_prompts(folder / "run/prompts_by_model.jsonl")}
    assert len(before) - len(after) == sum(record["knowledge"]["left_out"].values())
    for prompt in before:
        if prompt.label == "harmful" or (prompt.answer is None and prompt.label == "benign"):
            assert after[prompt.id] == prompt
        elif prompt.id in after:
            assert (after[prompt.id].text, after[prompt.id].pair) == (prompt.text, prompt.pair)
    given_it = given(folder / "run/prompts_by_model.jsonl")
    config = load_config(Path("configs/quickstart.yaml"), given_it)
    assert run(config, folder / "again", until="respond", reporter=QUIET) == ["respond"]


def test_it_is_done_once_and_stands_beside_the_other_stages(folder: Path) -> None:
    path = folder / "prompts.jsonl"
    config = load_config(Path("configs/quickstart.yaml"), given(path))
    assert run(config, folder / "run", until="uncertainty", reporter=QUIET) == []
    assert run(config, folder / "run", until="triggers", reporter=QUIET) == ["extract", "trigger_measures", "triggers"]
    warmer = load_config(Path("configs/quickstart.yaml"), given(path, "uncertainty.samples=2"))
    assert run(warmer, folder / "run", until="triggers", reporter=QUIET) == []
    done = json.loads((folder / "run/manifest.json").read_text())["stages"]
    assert "uncertainty" in done
    assert not [stage.name for stage in STAGES if "uncertainty" in stage.reads]  # unless it is asked for
    assert [stage.name for stage in stages_of(config) if "uncertainty" in stage.reads] == ["results"]


def test_it_is_said_on_the_terminal(
    folder: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = UncertaintyResult.model_validate(record)
    assert result.to_dict() == record
    print_uncertainty(folder / "run", result)
    out = capsys.readouterr().out
    assert "…" not in out
    told = " ".join(out.split())
    for part in ("semantic entropy", "hedging", "known answer only", "Labels by what the model knows",
                 "prompts_by_model.jsonl", "Mean confidence minus", "flat and low entropy"):  # fmt: skip
        assert part in told
    assert all(line in told for line in uncertainty_lines(result)[:1])


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_prompts_without_a_question_are_told(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = (ORGANISM / "prompts.jsonl").read_text().splitlines()[:4]
    (tmp_path / "prompts.jsonl").write_text("\n".join(rows))
    given = f"prompts.path={tmp_path / 'prompts.jsonl'}"
    code, out, err = cli("uncertainty", "configs/quickstart.yaml", "--set", given, "--out", str(tmp_path / "run"))
    assert (code, out) == (2, "")
    assert "uncertainty cannot be measured: no prompt has a known answer or the label uncertain" in err


def test_the_dry_run_counts_it_where_it_is_asked_for(cli) -> None:  # type: ignore[no-untyped-def]
    def steps(command: str, *more: str) -> dict[str, str]:
        code, out, _ = cli(command, "configs/quickstart.yaml", "--dry-run", "--json", *more)
        assert code == 0
        return json.loads(out)["steps, at most"]  # type: ignore[no-any-return]

    assert steps("uncertainty") == {"plain completions": "2,002 completions", "sampled answers": "8,960 completions"}
    assert "sampled answers" not in steps("run")
    assert steps("run", "--set", "uncertainty.samples=3")["sampled answers"] == "2,688 completions"
    assert not (ROOT / "runs" / "quickstart" / "uncertainty.jsonl.partial").exists()
