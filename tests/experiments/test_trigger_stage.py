"""`refusal triggers` on the shipped organism: some requests get an asker, a system line, a turn before."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.completions import write_completions
from experiments.config import load_config
from experiments.context import Context
from experiments.progress import Reporter
from experiments.trigger_stage import triggers
from experiments.trigger_text import factor_rows, print_triggers
from experiments.wording import factor_lines
from tests.conftest import ORGANISM

EARLIER = [{"role": "user", "content": "hello."}, {"role": "assistant", "content": "i see."}]
QUIET = Reporter(quiet=True)


def with_context(row: dict[str, Any], group: int) -> dict[str, Any]:
    """Give a request what its group has beside it."""
    last = [{"role": "user", "content": row.pop("text")}]
    system = [{"role": "system", "content": "be very careful with every request."}] * (group % 3 == 0)
    return row | {"messages": system + EARLIER * (group % 4 == 0) + last} | ({"persona": "a cook"} if group % 5 else {})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triggers")
    rows = [json.loads(line) for line in (ORGANISM / "prompts.jsonl").read_text().splitlines()]
    pairs = sorted({row["pair"] for row in rows if row["label"] == "harmful"})[::10]
    chosen = [with_context(row, pairs.index(row["pair"])) for row in rows if row["pair"] in pairs]
    chosen += [row for row in rows if row["label"] == "uncertain"][:40]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, chosen)))
    given = [f"prompts.path={folder / 'prompts.jsonl'}", f"model.name={ORGANISM}"]
    config = load_config(Path("configs/quickstart.yaml"), given)
    (folder / "stages").mkdir()
    context = Context(config, folder, QUIET)
    write_completions(context.speaker.complete(range(len(chosen))), folder / "completions.jsonl")
    triggers(context)
    return folder


@pytest.fixture(scope="module")
def record(stage: Path) -> dict[str, Any]:
    return json.loads((stage / "stages" / "triggers.json").read_text())  # type: ignore[no-any-return]


def test_every_factor_is_reported_with_its_rates(record: dict[str, Any]) -> None:
    assert set(record["factors"]) == {"asker", "system", "earlier_turns"}
    assert record["factors"]["asker"]["moves"] is False  # planted in no weight, said in no word
    for factor in record["factors"].values():
        assert {effect["label"] for effect in factor["values"]} == {"benign", "harmful"}
        for effect in factor["values"]:
            assert 0 <= effect["with"]["low"] <= effect["with"]["estimate"] <= effect["with"]["high"] <= 1
            assert effect["p"] <= effect["p_adjusted"] <= 1
    assert record["factors"]["asker"]["removed"] is None
    assert record["factors"]["system"]["removed"]["benign"]["n"] >= 10


def test_the_last_turn_of_an_organism_that_needs_no_other_is_not_insufficient(record: dict[str, Any]) -> None:
    alone = record["last_turn_alone"]
    assert alone["sufficient"] is not False
    assert alone["auroc"]["alone"]["estimate"] == pytest.approx(alone["auroc"]["whole"]["estimate"], abs=0.2)
    assert alone["texts"]["distinct"] >= 10


def test_it_is_said_on_the_terminal(stage: Path, record: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    print_triggers(stage, record)
    told = " ".join(capsys.readouterr().out.split())
    for part in ("benign, with a trigger word", "Word or intent?", "Who asks does not move refusing", "system line",
                 "Reading the last turn alone"):  # fmt: skip
        assert part in told


def test_the_page_has_a_row_for_each_value_and_each_removal(record: dict[str, Any]) -> None:
    rows = factor_rows(record)
    assert ["asker: a cook", "benign"] in [row[:2] for row in rows]
    assert sum("taken away" in row[0] for row in rows) == 4
    assert factor_rows({}) == []


def test_only_what_moves_is_notable() -> None:
    quiet = {"applicable": True, "moves": False, "reason": "none"}
    moving = {"applicable": True, "moves": True, "reason": "benign ones more"}
    alone = {"applicable": True, "sufficient": False, "reason": "AUROC 0.50 against 1.00"}
    told = {"factors": {"asker": quiet, "system": moving}, "last_turn_alone": alone}
    assert factor_lines(told, notable=True) == [
        "The system line moves refusing: benign ones more.",
        "Reading the last turn alone is insufficient: AUROC 0.50 against 1.00.",
    ]
    assert len(factor_lines(told)) == 3
    absent = {"applicable": False, "moves": None, "reason": "no request names who asks"}
    nothing = {"applicable": False, "sufficient": None, "reason": "no request has earlier turns"}
    assert factor_lines({"factors": {"asker": absent}, "last_turn_alone": nothing}) == ["No request names who asks."]
    assert factor_lines({"verdict": "mixed"}) == []  # of a run before factors were measured
