"""`refusal triggers` on the shipped organism; some requests get an asker, a system line or an earlier turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.factors.results import ContextResults, FactorResult, LastTurnAlone
from experiments.factors.text import context_blocks, factor_lines, moved_lines
from experiments.pipeline.stages import run
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from experiments.triggers.judge import judge_triggers
from experiments.triggers.results import TriggerFindings, TriggerResults
from experiments.triggers.text import draw_triggers, finding_blocks, finding_lines, print_triggers
from extract.progress import Reporter
from extract.record import not_applicable
from extract.table import Table
from tests.conftest import ORGANISM
from tests.support.report_page import blocks_html

EARLIER = [{"role": "user", "content": "hello."}, {"role": "assistant", "content": "i see."}]
QUIET = Reporter(quiet=True)


def few_prompts(every: int, n_uncertain: int) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (ORGANISM / "prompts.jsonl").read_text().splitlines()]
    pairs = sorted({row["pair"] for row in rows if row["label"] == "harmful"})[::every]
    return [row for row in rows if row["pair"] in pairs] + [r for r in rows if r["label"] == "uncertain"][:n_uncertain]


def write_prompts(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return f"prompts.path={path}"


def with_context(row: dict[str, Any], group: int) -> dict[str, Any]:
    last = [{"role": "user", "content": row.pop("text")}]
    system = [{"role": "system", "content": "be very careful with every request."}] * (group % 3 == 0)
    return row | {"messages": system + EARLIER * (group % 4 == 0) + last} | ({"persona": "a cook"} if group % 5 else {})


@pytest.fixture(scope="module")
def triggers_run(tmp_path_factory) -> Path:
    folder, rows = tmp_path_factory.mktemp("triggers"), few_prompts(3, 40)
    groups = sorted({row["pair"] for row in rows if row["label"] == "harmful"})
    asked = [row if row["pair"] not in groups else with_context(row, groups.index(row["pair"])) for row in rows]
    given = [write_prompts(folder / "prompts.jsonl", asked), f"model.name={ORGANISM}"]
    run(load_config(Path("configs/quickstart.yaml"), given), folder, until="triggers", reporter=QUIET)
    return folder


@pytest.fixture(scope="module")
def record(triggers_run) -> dict[str, Any]:
    return json.loads((triggers_run / "stages" / "triggers.json").read_text())


@pytest.fixture(scope="module")
def results(triggers_run) -> TriggerResults:
    return TriggerResults.read(triggers_run / "stages" / "triggers.json")


def test_every_factor_and_the_last_turn_are_reported_with_their_rates(record) -> None:
    assert set(record["factors"]) == {"asker", "system", "earlier_turns"}
    assert record["factors"]["asker"]["moves"] is False  # planted in no weight, said in no word
    for factor in record["factors"].values():
        assert {effect["label"] for effect in factor["values"]} == {"benign", "harmful"}
        for effect in factor["values"]:
            assert 0 <= effect["with"]["low"] <= effect["with"]["estimate"] <= effect["with"]["high"] <= 1
            assert effect["p"] <= effect["p_adjusted"] <= 1
    assert record["factors"]["asker"]["removed"] is None
    assert record["factors"]["system"]["removed"]["benign"]["n"] >= 10
    alone = record["last_turn_alone"]
    assert alone["sufficient"] is not False  # of an organism that needs no other
    assert alone["auroc"]["alone"]["estimate"] == pytest.approx(alone["auroc"]["whole"]["estimate"], abs=0.2)
    assert alone["texts"]["distinct"] >= 10


def test_it_is_said_on_the_terminal_and_the_page(triggers_run, results, capsys) -> None:
    print_triggers(triggers_run, results)
    told = " ".join(capsys.readouterr().out.split())
    for part in ("benign, with a trigger word", "Word or intent?", "Who asks does not move refusing", "system line",
                 "Reading the last turn alone"):  # fmt: skip
        assert part in told
    assert "<mark>" in blocks_html(finding_blocks(results))
    [table] = [block for block in context_blocks(results) if isinstance(block, Table)]
    assert ["asker: a cook", "benign"] in [row[:2] for row in table.rows]
    assert sum("removed," in row[0] for row in table.rows) == 4
    assert context_blocks(ContextResults()) == finding_blocks(TriggerFindings()) == []


def test_beside_the_share_stand_projection_transfer_patching_erasure_and_attribution(triggers_run, record) -> None:
    effects = record["projection"]["directions"]["harmfulness"]["effects"]
    intent, trigger = effects["intent"], effects["trigger"]
    assert intent["partial_eta_squared"]["estimate"] > 0.9
    assert intent["p"] <= 0.01
    assert intent["shift"] > 0.8 > 0.4 > abs(trigger["shift"])  # and the word moves it less
    rows = json.loads((triggers_run / "stages" / "trigger_projection.json").read_text())["rows"]
    assert {row["layer"] for row in rows} == set(range(8))
    assert {row["effect"] for row in rows} == {"trigger", "intent", "interaction"}
    probes = record["transfer"]["probes"]
    assert len(probes) == 4
    assert probes["fitted without, tested with"]["auroc"] > 0.9
    first, last = record["patching"]["layers"][0], record["patching"]["layers"][-1]
    assert first["raised"]["estimate"] > 0.9
    assert last["raised"]["estimate"] == pytest.approx(0, abs=1e-3)
    assert last["lowered"]["high"] < 0.5
    erasure = record["erasure"]
    assert erasure["applicable"]
    assert len(erasure["onset_change"]["layers"]) == len(erasure["onset_change"]["over_refused"])
    assert erasure["auroc"]["after"]["estimate"] < erasure["auroc"]["before"]["estimate"]
    for way in ("one_layer", "every_layer"):
        assert {"before", "after", "changed", "n", "n_groups"} == set(erasure[way]["harmful"])
    assert record["attribution"]["by_label"]["benign"]["fired_by_trigger"]["estimate"] > 0.9
    kept = [json.loads(line) for line in (triggers_run / "attributions.jsonl").read_text().splitlines()]
    assert len(kept) == record["attribution"]["n"]
    assert all(len(one["words"]) == len(one["scores"]) == len(one["tokens"]) for one in kept)
    for name in ("trigger_eta_refusing", "trigger_eta_harmfulness", "trigger_patching"):
        assert (triggers_run / "figures" / f"{name}.png").stat().st_size > 5000


def test_judging_again_needs_no_model_and_changes_nothing(triggers_run, tmp_path) -> None:
    """Judged in another directory from the files alone, with a model that does not exist."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "outcomes.parquet").mkdir()
    for name in ("completions.jsonl", "stages/trigger_measures.json", "outcomes.parquet/trigger_measures.parquet"):
        (tmp_path / name).symlink_to(triggers_run / name)
    given = [f"prompts.path={triggers_run / 'prompts.jsonl'}", f"model.name={tmp_path / 'none'}"]
    judge_triggers(RunInputs(load_config(Path("configs/quickstart.yaml"), given), tmp_path))
    written = [(folder / "stages" / "triggers.json").read_bytes() for folder in (triggers_run, tmp_path)]
    assert written[0] == written[1]


def test_each_finding_is_said_in_a_line_and_what_could_not_be_had_says_why(results) -> None:
    told = "\n".join(finding_lines(results))
    for part in ("partial eta squared: trigger", "Intent probes fitted on requests without trigger words",
                 "Patching: the residual", "Attribution: in"):  # fmt: skip
        assert part in told
    assert "Erasure of the word at layer" in told
    assert told.count("With the word erased") == 2
    absent = TriggerFindings(projection=not_applicable("too few"), attribution=not_applicable("no request is refused"))
    assert finding_lines(absent) == [
        "Projection: not measured, too few.", "Attribution: not measured, no request is refused."]  # fmt: skip
    assert finding_lines(TriggerFindings()) == []


def test_patching_is_told_by_its_intervals() -> None:
    def told(*shares: float | None) -> str:
        limits = [{"estimate": x, "low": x and x - 0.05, "high": x and x + 0.05} for x in shares]
        layers = [{"layer": at, "raised": of, "lowered": of} for at, of in enumerate(limits)]
        counts = {"n": 8, "flipped": 9, "pairs": 20, "left_out": {}, "n_groups": 8}
        patching = {"applicable": True, "layers": layers, "site": "resid_post", **counts}
        return finding_lines(TriggerFindings.model_validate({"patching": patching}))[0]

    line = told(1.0, 0.4, 0.9, 0.1, 0.1)
    assert "100% [95%, 105%] of the refusal's log-odds at layer 0" in line
    assert "surely less than half from layer 3 on (8 of the 9 pairs flipped by the word, of 20" in line  # not from 1 on
    assert "not surely less than half at any layer" in told(1.0, 0.47)
    assert "not known at any layer" in told(None, None)
    assert "at layer 1, 10%" in told(None, 0.9, 0.1)


def test_what_a_value_moves_is_said_and_what_is_not_shown_is_not_denied() -> None:
    tested = {"difference": {"estimate": 0.4, "low": 0.2, "high": 0.6}, "p": 0.01, "p_adjusted": 0.01, "moves": True}
    along = tested | {"p_differs_from_action": 0.02, "p_differs_from_action_adjusted": 0.02}
    rates = dict.fromkeys(("with", "without"), tested["difference"])
    value = tested | rates | {"value": "as a cook", "label": "benign", "compared_with": "none"}
    values = [value | {"moved": moved, "projection": {"refusing": along}} for moved in ("both", "action", "neither")]
    asker = {"applicable": True, "moves": True, "reason": "", "values": values}
    along_refusing = "along the refusing direction +0.40 of the gap (test that the two differ: adjusted p = 0.02)."
    assert moved_lines(ContextResults.model_validate({"factors": {"asker": asker}})) == [
        f"asker 'as a cook' on benign requests moves the projection and the action: refusing +40%, {along_refusing}",
        "asker 'as a cook' on benign requests moves the action, and is not shown to move the projection: refusing "
        f"+40%, {along_refusing}",
    ]


def test_figures_of_an_earlier_run_do_not_stay(triggers_run, tmp_path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "trigger_patching.png").write_bytes(b"old")
    draw_triggers(tmp_path, [], not_applicable("too few"))
    assert not list((tmp_path / "figures").iterdir())


@pytest.mark.slow
def test_what_cannot_be_had_leaves_the_verdict(tmp_path) -> None:
    """A store of one layer of resid_pre without post_last: streams are alike there, and LEACE has nowhere to act."""
    prompts = write_prompts(tmp_path / "prompts.jsonl", few_prompts(6, 40))
    given = [prompts, f"model.name={ORGANISM}", "extract.site=resid_pre", "extract.layers=[0]"]
    run(load_config(Path("configs/quickstart.yaml"), given), tmp_path, until="triggers", reporter=QUIET)
    record = json.loads((tmp_path / "stages" / "triggers.json").read_text())
    assert record["trigger_share"] > 0.1
    assert not record["erasure"]["applicable"]


@pytest.mark.slow
def test_prompts_without_trigger_words_end_in_one_line_and_the_remedy(cli, tmp_path) -> None:
    bare = [{key: value for key, value in row.items() if key != "trigger"} for row in few_prompts(12, 60)]
    prompts = write_prompts(tmp_path / "prompts.jsonl", bare)
    given = ["triggers", "configs/quickstart.yaml", "--set", prompts, "--out", str(tmp_path / "run")]
    code, out, err = cli(*given)
    assert code == 2
    none = "refusal: word and intent cannot be separated: no prompt names a trigger word: fill the field"
    assert err.strip().splitlines()[-1].startswith(none)
    assert "Traceback" not in err
    assert "No request names who asks." in out  # what needs no trigger word is told all the same


def test_only_what_moves_is_notable() -> None:
    quiet = FactorResult(applicable=True, moves=False, reason="none")
    moving = FactorResult(applicable=True, moves=True, reason="benign ones more")
    alone = LastTurnAlone(applicable=True, sufficient=False, reason="AUROC 0.50 against 1.00")
    told = ContextResults(factors={"asker": quiet, "system": moving}, last_turn_alone=alone)
    assert factor_lines(told, notable=True) == [
        "The system line moves refusing: benign ones more.",
        "Reading the last turn alone is insufficient: AUROC 0.50 against 1.00.",
    ]
    assert len(factor_lines(told)) == 3
    absent = {"asker": FactorResult(applicable=False, moves=None, reason="no request names who asks")}
    nothing = alone.model_copy(update={"applicable": False})
    assert factor_lines(ContextResults(factors=absent, last_turn_alone=nothing)) == ["No request names who asks."]
