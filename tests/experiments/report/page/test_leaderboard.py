"""The leaderboard: which models are on the front, what the page shows, and what the command refuses."""

import json
import re
from collections.abc import Callable
from math import nan
from pathlib import Path

import pytest

from experiments.probing.results import CategoryReading, UnspokenReads
from experiments.report.page.leaderboard import RankedModel, leaderboard_page, on_front
from experiments.report.results import RunResults
from probes.statistics.intervals import Estimate
from scoring.evaluation.asking import Evaluation
from scoring.score_file import score_file
from scoring.scorecard import Scorecard

Cli = Callable[..., tuple[int, str, str]]
NO, UNSURE = "I can't help with that.", "I don't know."
POLICIES = {
    "willing": {"benign": "Sure.", "harmful": "Sure.", "uncertain": "It is Paris."},
    "careful": {"benign": NO, "harmful": NO, "uncertain": UNSURE},
    "right": {"benign": "Sure.", "harmful": NO, "uncertain": UNSURE},
}


@pytest.mark.parametrize(
    ("rates", "front"),
    [
        ([[0.1, 0.2, 0.3], [0.2, 0.1, 0.3]], [True, True]),
        ([[0.1, 0.2, 0.3], [0.1, 0.2, 0.4]], [True, False]),
        ([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]], [True, True]),  # equal models do not beat each other
        ([[0.5, 0.5, 0.5], [0.4, 0.4, 0.4], [0.3, 0.6, 0.1]], [False, True, True]),
        ([[0.0, 0.0, nan], [0.4, 0.4, 0.4]], [False, True]),
        ([], []),
    ],
)
def test_on_the_front_is_who_is_not_beaten_in_all(rates: list[list[float]], front: list[bool]) -> None:
    assert on_front(rates) == front


def evaluated(folder: Path, name: str, suite: str = "core") -> Path:
    out = folder / name
    out.mkdir()
    rows = [{"id": f"{label}{i}", "label": label, "completion": said}
            for label, said in POLICIES[name].items() for i in range(20)]  # fmt: skip
    (out / "completions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    score_file(out / "completions.jsonl", out)
    Evaluation(target=f"lab/{name}", suite=suite, prompts=60, settings={"max_new_tokens": 64, "adapter": None},
               sources={"mine": 60}).write(out / "evaluation.json")  # fmt: skip
    (out / "report.html").write_text("<html></html>")
    return out


def cells(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", page, re.DOTALL)
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split())
             for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]  # fmt: skip


def test_the_page_ranks_models_and_tells_how_to_ask_them_again(cli: Cli, tmp_path: Path) -> None:
    runs = [str(evaluated(tmp_path, name)) for name in POLICIES]
    code, out, err = cli("leaderboard", *runs, "--out", str(tmp_path / "board.html"))
    assert (code, out.strip(), err) == (0, str(tmp_path / "board.html"), "")
    page = (tmp_path / "board.html").read_text()
    found = cells(page)
    assert found[0][0] == "lab/right"
    assert {row[0]: row[1].split(" %")[0] for row in found} == {"lab/right": "0.0", "lab/willing": "0.0",
                                                                  "lab/careful": "100.0"}  # fmt: skip
    assert {row[0]: row[-1] for row in found} == {"lab/right": "yes", "lab/willing": "", "lab/careful": ""}
    assert "refusal eval lab/right --suite core --max-new-tokens 64" in page
    assert 'href="right/report.html"' in page
    assert "not comparable" not in page
    assert "asked the suite core (mine 60)" in page


def test_models_that_were_asked_other_prompts_are_not_called_comparable(cli: Cli, tmp_path: Path) -> None:
    runs = [evaluated(tmp_path, "right"), evaluated(tmp_path, "careful", suite="public")]
    assert cli("leaderboard", *map(str, runs), "--out", str(tmp_path / "board.html"))[0] == 0
    assert "their rates are not comparable" in (tmp_path / "board.html").read_text()


def test_a_scored_file_without_an_evaluation_is_listed_by_its_folder(cli: Cli, tmp_path: Path) -> None:
    run = evaluated(tmp_path, "right")
    (run / "evaluation.json").unlink()
    assert cli("leaderboard", str(run), "--out", str(tmp_path / "board.html"))[0] == 0
    assert cells((tmp_path / "board.html").read_text())[0][0] == "right"


def test_a_finished_run_is_listed_with_what_it_reads_and_does_not_say(cli: Cli, tmp_path: Path) -> None:
    fixtures = Path(__file__).resolve().parents[3] / "fixtures"
    run = next(path.parent for path in sorted(fixtures.glob("*/results.json")))
    found, (right, wide) = (
        RunResults.read(run / "results.json"),
        (Estimate(0.82, 0.7, 0.9), Estimate(0.43, 0.1, 0.6, 318)),
    )
    row = CategoryReading(category="all", auroc=right, auroc_known=right, abstained=wide, silent=wide, known=wide)
    (tmp_path / "run").mkdir()
    told = found.model_copy(update={"unspoken": UnspokenReads(categories=(row,))})
    told.write(tmp_path / "run" / "results.json")
    runs = [str(tmp_path / "run"), str(evaluated(tmp_path, "right"))]
    assert cli("leaderboard", *runs, "--out", str(tmp_path / "board.html"))[0] == 0
    page = (tmp_path / "board.html").read_text()
    by_name = {row[0]: row for row in cells(page)}
    assert by_name[found.model.name][6:8] == ["0.82 [0.70, 0.90]", "43.0 % [10.0, 60.0]"]
    assert by_name["lab/right"][6:8] == ["not read", "not read"]
    assert "read and not said" in page


def test_names_are_quoted_data(tmp_path: Path) -> None:
    card = Scorecard.read(evaluated(tmp_path, "right") / "scorecard.json")
    page = leaderboard_page([RankedModel("<script>alert(1)</script>", card, "x")])
    assert "<script>alert(1)" not in page


def test_each_mistake_is_one_line(cli: Cli, tmp_path: Path) -> None:
    run = evaluated(tmp_path, "right")
    for given, message in (
        ([str(tmp_path)], "has no scorecard.json; give directories written by refusal run, eval or score"),
        ([str(run), str(run)], "two runs are of lab/right"),
    ):
        code, _, err = cli("leaderboard", *given, "--out", str(tmp_path / "board.html"))
        assert (code, len(err.splitlines())) == (2, 1)
        assert message in err
    assert not (tmp_path / "board.html").exists()
