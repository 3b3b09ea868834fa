"""`refusal score` from rows to files: no completion is dropped, no partial file stays, memory does not grow."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from extract.errors import UserError
from extract.prompts.prompt import LABELS, Prompt
from extract.shipped import ROOT
from scoring.case import cases_of
from scoring.compare.comparison import compare_runs
from scoring.judges.rules import RuleJudge
from scoring.right_action import load_adjacency
from scoring.score_file import score_completions, score_file

CREDITS = load_adjacency()
POLICIES = {
    "refuse": "I'm sorry, but I can't help with that.",
    "answer": "Use a screwdriver and loosen the two hinges, then lift the door out.",
    "abstain": "I don't have any information about this person.",
    "clarify": "Could you tell me which of the two you mean?",
}


def score(rows: Iterable[Mapping[str, Any]], out: Path, **options: Any) -> dict[str, Any]:
    return score_completions(rows, out, RuleJudge(), CREDITS, **options).to_dict()


def scored(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "scored.jsonl").read_text().splitlines()]


def row(i: int, label: str = "benign", action: str = "answer", **also: Any) -> dict[str, Any]:
    return {"id": i, "text": f"question {i}", "label": label, "completion": POLICIES[action], **also}


def test_bad_input_is_counted_and_stays(tmp_path: Path) -> None:
    prompts = [Prompt(str(i), ({"role": "user", "content": f"question {i}"},), "benign", "answer") for i in range(4)]
    rows = [row(0), row(0), row(0, action="refuse"), row(1, label="harmful") | {"completion": " "},
            row(2) | {"completion": None, "text": "another question"}, row(99)]  # fmt: skip
    card = score(rows, tmp_path, cases=cases_of(prompts))
    assert {what: (counted["n"], counted["first"]) for what, counted in card["input"].items()} == {
        "repeated id": (1, ["0"]), "conflicting id": (1, ["0"]), "empty completion": (1, ["1"]),
        "without completion": (1, ["2"]), "unknown id": (1, ["99"]), "prompt without completion": (1, ["3"]),
        "text differs from the prompt's": (1, ["2"]),
    }  # fmt: skip
    assert card["n"] == 5
    assert card["rates"]["over_refusal"]["n"] == 2
    assert card["rates"]["unjudged"] == 2
    assert card["rates"]["missed_harm"]["n"] == 0  # the prompt file decides the label, not the row
    written = scored(tmp_path)
    assert [r["id"] for r in written] == ["0", "0", "0", "1", "2", "99"]
    assert [r.get("repeated", False) for r in written] == [False, True, False, False, False, False]
    assert json.loads((tmp_path / "scorecard.json").read_text()) == card


def test_right_actions_are_scored_without_labels(tmp_path: Path) -> None:
    rows = [row(i, right_action=right, action=right) | {"label": None} for i, right in enumerate(("answer", "refuse"))]
    card = score(rows, tmp_path)
    assert card["rates"] is None
    assert card["right_action"]["score"]["estimate"] == pytest.approx(1)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_scored_file_counts_as_the_completions_did(suffix: str, tmp_path: Path) -> None:
    rows = [row(i, LABELS[i % 3], list(POLICIES)[i % 4], pair=i // 2, category="a\0b") for i in range(24)]
    rows += [rows[0], row(1, action="abstain"), row(2, action="clarify", sample=0), row(3) | {"completion": None}]
    card = score(rows, tmp_path, parquet=True)
    path = tmp_path / f"scored.{suffix}"
    again = compare_runs([path, path], CREDITS).to_dict()
    assert again["first"]["n"] == card["n"] == 27
    assert again["first"]["rates"] == card["rates"]
    assert again["first"]["right_action"] == card["right_action"]["score"]
    assert again["first"]["repeated"] == again["first"]["conflicting"] == 0
    assert again["comparisons"][0]["matched"]["prompts"] == card["n"]
    assert again["comparisons"][0]["flips"] == []


def test_characters_that_cannot_be_written_are_spelled_out(tmp_path: Path) -> None:
    rows = [row(0, category="\ud800", persona="\0", completion="I can't help \udfff with that."), row(1, id="\udc00")]
    card = score(rows, tmp_path, parquet=True)
    assert set(card["by"]["category"]) == {"\\ud800"}
    assert [r["id"] for r in scored(tmp_path)] == ["0", "\\udc00"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, UserError, OSError])
@pytest.mark.parametrize("parquet", [False, True])
def test_a_stop_midway_leaves_earlier_results(fault: type[BaseException], parquet: bool, tmp_path: Path) -> None:
    score([row(0)], tmp_path, parquet=parquet)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def rows() -> Iterator[dict[str, Any]]:
        yield row(1)
        raise fault("midway")

    with pytest.raises(fault, match="midway"):
        score(rows(), tmp_path, parquet=parquet)
    with pytest.raises(UserError, match="there are no completions to score"):
        score([], tmp_path, parquet=parquet)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("parquet", [False, True])
def test_a_full_disk_leaves_nothing_half_written(parquet: bool, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(UserError, match=r"cannot write .*scored.* free disk space"):
            score((row(i) for i in range(500)), tmp_path / "out", parquet=parquet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "out").exists()


def test_completions_are_not_overwritten_by_their_own_scores(tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    path.write_text(json.dumps(row(0)))
    before = path.read_text()
    with pytest.raises(UserError, match=r"would be overwritten .* choose another directory with --out"):
        score_file(path, tmp_path)
    assert path.read_text() == before
    assert score_file(path, tmp_path / "out").n == 1


GROWTH = """
import sys
from pathlib import Path
from scoring.judges import Judgement, JudgeRecord
from scoring.right_action import load_adjacency
from scoring.score_file import score_completions

class Quick:
    def judge_all(self, completions):
        for one in completions:
            yield Judgement("answer", one.completion[:20])
    def record(self):
        return JudgeRecord(judge="quick")

def peak(n):
    rows = ({"id": i, "text": f"question {i} " * 20, "label": "benign", "category": f"c {i % 7}", "pair": i // 2,
             "completion": f"answer {i}"} for i in range(n))
    assert score_completions(rows, Path(sys.argv[1]), Quick(), load_adjacency()).n == n
    status = Path("/proc/self/status").read_text()  # getrusage would give the peak of the process that started this one
    return int(status.split("VmHWM:")[1].split()[0])

few = peak(2_000)
print(peak(40_000) - few)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory where Linux tells it")
def test_memory_does_not_grow_with_the_number_of_completions(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH, str(tmp_path)], capture_output=True, text=True, cwd=ROOT,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 8 * 1024, "KiB more for 38,000 rows more, which hold 20 MiB of text"
