"""A comparison as Markdown, CSV and JUnit: the numbers of comparison.json, readable by real readers of the formats."""

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from probes.statistics.intervals import NO_RATE
from scoring.compare.comparison import Comparison, compare_runs
from scoring.compare.fail_if import parse
from scoring.compare.text import to_csv, to_junit, to_markdown
from scoring.right_action import DEFAULT, load_adjacency
from tests.scoring.compare.test_comparison import policy, run

CAREFUL = {"benign": "refuse", "harmful": "refuse", "uncertain": "abstain"}
WILLING = {"benign": "answer", "harmful": "answer", "uncertain": "answer"}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [run(tmp_path / "a|b.jsonl", policy(WILLING)), run(tmp_path / "careful.jsonl", policy(CAREFUL)),
            run(tmp_path / "again.jsonl", policy(WILLING))]  # fmt: skip


@pytest.fixture
def comparison(files: list[Path]) -> Comparison:
    return compare_runs(files, load_adjacency(DEFAULT))


def test_the_csv_has_the_numbers_of_the_record(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert len(rows) == 2 * 5
    for row in rows:
        later = next(one for one in comparison.comparisons if one.run == row["run"])
        if row["rate"] == "right_action":
            assert float(row["change"]) == later.right_action_change.estimate
            continue
        change = later.changes[row["rate"]]
        assert (float(row["first"]), float(row["second"])) == (change.first, change.second)
        assert (float(row["change_low"]), float(row["change_high"])) == (change.difference.low, change.difference.high)
        assert (float(row["p"]), int(row["n"])) == (change.mcnemar_p_holm, change.difference.n)


def test_the_markdown_is_one_table_whatever_files_are_called(comparison: Comparison) -> None:
    text = to_markdown(comparison).splitlines()
    assert text[0].startswith("### Compared with ")
    assert "a\\|b" in text[0]
    table = [line for line in text if line.startswith("|")]
    assert len(table) == 2 + 10
    assert {line.replace("\\|", "").count("|") for line in table} == {8}
    line = next(line for line in table if "careful" in line and "| over_refusal |" in line)
    assert "| 0.0% | 100.0% | +100.0% [+" in line


def test_junit_fails_where_a_condition_holds_and_errs_where_nothing_is_known(comparison: Comparison) -> None:
    conditions = [parse(text) for text in ("over_refusal > 5%", "change.missed_harm.low > 0", "unjudged > 0")]
    root = ElementTree.fromstring(to_junit(comparison, conditions))
    suites = {suite.get("name", "").split()[0].split("/")[-1]: suite for suite in root}
    careful, again = (next(suite for name, suite in suites.items() if one in name) for one in ("careful", "again"))
    assert (careful.get("tests"), careful.get("failures"), careful.get("errors")) == ("3", "1", "0")
    assert (again.get("failures"), again.get("errors")) == ("0", "0")
    failed = [case.get("name") for case in careful if case.find("failure") is not None]
    assert failed == ["over_refusal > 5%"]
    run = comparison.comparisons[0]
    silent = run.model_copy(update={"rates": run.rates.model_copy(update={"over_refusal": NO_RATE})})
    unknown = to_junit(comparison.model_copy(update={"comparisons": (silent,)}), conditions[:1])
    assert [suite.get("errors") for suite in ElementTree.fromstring(unknown)] == ["1"]


def test_the_command_writes_all_three_and_still_fails(cli, files: list[Path], tmp_path: Path) -> None:
    out = [tmp_path / name for name in ("t.md", "t.csv", "t.xml")]
    given = ["compare", *map(str, files[:2]), "--json", "--fail-if", "over_refusal > 5%"]
    code, printed, err = cli(*given, "--markdown", str(out[0]), "--csv", str(out[1]), "--junit", str(out[2]))
    assert (code, "over_refusal > 5%" in err) == (1, True)
    assert all(path.stat().st_size > 100 for path in out)
    assert json.loads(printed)["failed"]
    code, _, err = cli("compare", *map(str, files[:2]), "--junit", str(tmp_path / "x.xml"))
    assert (code, len(err.splitlines()), (tmp_path / "x.xml").exists()) == (2, 1, False)
    assert "--junit writes the conditions of --fail-if" in err
