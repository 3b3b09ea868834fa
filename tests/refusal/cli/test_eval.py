"""`refusal eval`: local models and endpoints, what is written, a killed run, and what is refused."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from extract.shipped import ROOT
from scoring.judges.rules import RuleJudge
from tests.support.chat_server import Answer, Asked, ChatServer, running
from tests.support.one_line import printed

ORGANISM = str(ROOT / "organisms" / "zoo" / "two-knobs")
WRITTEN = ("prompts.jsonl", "completions.jsonl", "scored.jsonl", "scorecard.json", "summary.md")


def echo(asked: Asked) -> Answer:
    text = asked.body["messages"][-1]["content"]
    return Answer("I can't help with that." if len(text) % 3 else f"Sure: {text}")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with running() as found:
        found.answers = echo
        yield found


def suite(folder: Path, n: int) -> str:
    labels = ("benign", "harmful", "uncertain")
    rows = [{"id": f"p{i}", "text": f"question {'x' * (i % 7)} {i}?", "label": labels[i % 3]} for i in range(n)]
    (folder / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "mine.yaml").write_text(f"path: {folder / 'mine.jsonl'}\n")
    return str(folder / "mine.yaml")


def capitals(folder: Path) -> str:
    """Return a suite of two questions with a known answer, and a greeting."""
    rows = [{"id": "a", "text": "Capital of France?", "label": "benign", "answer": "Lutetia | Paris"},
            {"id": "b", "text": "Capital of Spain?", "label": "benign", "answer": "Madrid"},
            {"id": "c", "text": "Hello?", "label": "benign"}]  # fmt: skip
    (folder / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "mine.yaml").write_text(f"path: {folder / 'mine.jsonl'}\n")
    return str(folder / "mine.yaml")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_local_model_is_asked_once_and_scored_jointly(cli, tmp_path: Path) -> None:
    given = ["eval", ORGANISM, "--limit", "6", "--max-new-tokens", "16", "--out", str(tmp_path / "out")]
    out = printed(cli(*given))
    prompts, rows = lines(tmp_path / "out" / "prompts.jsonl"), lines(tmp_path / "out" / "completions.jsonl")
    assert len(prompts) == len(rows) == 24
    assert [row["id"] for row in rows] == [prompt["id"] for prompt in prompts]
    scored, judge = lines(tmp_path / "out" / "scored.jsonl"), RuleJudge()
    text = {prompt["id"]: prompt["messages"][-1]["content"] for prompt in prompts}
    assert [row["action"] for row in scored] == [judge.judge(row["completion"], text[row["id"]]).action for row in rows]
    card = json.loads((tmp_path / "out" / "scorecard.json").read_text())
    declined = sum(row["action"] in ("refuse", "abstain") for row in scored if row["label"] == "benign")
    assert card["rates"]["over_refusal"]["estimate"] == pytest.approx(declined / 6)
    assert "over_refusal: benign prompts declined" in out
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert f"| over_refusal: benign prompts declined | {declined / 6:.1%} |" in summary
    assert "24 of 24 prompts answered." in summary
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    before = {name: (tmp_path / "out" / name).read_bytes() for name in WRITTEN}
    code, _, err = cli(*given)
    assert (code, "24 of 24 prompts are answered already" in err) == (0, True)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in WRITTEN} == before


def test_an_endpoint_s_answers_and_cost(cli, tmp_path: Path, server: ChatServer) -> None:
    given = ["eval", "some-model", "--base-url", server.url, "--suite", suite(tmp_path, 30), "--json"]
    out = printed(cli(*given, "--out", str(tmp_path / "out"), "--price-input", "2", "--price-output", "10"))
    found = json.loads(out)
    assert (found["answered"], found["input_tokens"], found["output_tokens"]) == (30, 3000, 300)
    assert found["cost"] == pytest.approx(3000 * 2e-6 + 300 * 10e-6)
    assert found["scorecard"]["n"] == 30
    for row, asked in zip(lines(tmp_path / "out" / "completions.jsonl"), lines(tmp_path / "mine.jsonl"), strict=True):
        assert row["completion"] == ("I can't help with that." if len(asked["text"]) % 3 else f"Sure: {asked['text']}")
    assert {one.body["model"] for one in server.asked} == {"some-model"}
    assert all("response_format" not in one.body for one in server.asked)


def test_forty_answers_of_each_label_are_rated_before_the_rest_is_asked(cli, tmp_path, server: ChatServer) -> None:
    given = ["eval", "m", "--base-url", server.url, "--suite", suite(tmp_path, 90), "--out", str(tmp_path / "out")]
    code, _, err = cli(*given)
    assert code == 0, err
    texts = [one.body["messages"][-1]["content"] for one in server.asked]
    assert len(set(texts)) == len(texts) == 90  # nobody is asked twice
    label = {row["text"]: row["label"] for row in lines(tmp_path / "mine.jsonl")}
    first = {name: [text for text in texts[:40] if label[text] == name] for name in ("benign", "harmful")}
    assert {len(own) for own in first.values()} <= {13, 14}
    declined = sum(len(text) % 3 > 0 for text in first["benign"]) / len(first["benign"])
    assert f"a first look at 40 answers, by rules: over_refusal {declined:.0%} [" in err
    assert err.index("a first look") < err.index("asking m ", err.index("a first look"))
    code, _, err = cli(*given)
    assert (code, "the first 40" in err, len(server.asked)) == (0, False, 90)


def test_a_stated_target_is_in_the_questions_with_known_answers_only(cli, tmp_path, server) -> None:
    server.answers = lambda asked: Answer("It is Paris.")
    given = ["eval", "m", "--base-url", server.url, "--suite", capitals(tmp_path), "--json"]
    out = printed(cli(*given, "--out", str(tmp_path / "out"), "--state-target", "0.75"))
    said = [one.body["messages"][-1]["content"] for one in server.asked]
    assert sum("a wrong one loses 3" in text and "more than 75% sure" in text for text in said) == 2
    assert "Hello?" in said
    penalty = json.loads(out)["scorecard"]["penalty"]
    assert (penalty["right"], penalty["wrong"], penalty["none"]) == (1, 1, 0)
    assert penalty["scores"]["0.75"]["estimate"] == pytest.approx(-1.0)
    assert "a wrong one costs 3 | -1.00 |" in (tmp_path / "out" / "summary.md").read_text()


def test_a_stated_confidence_is_asked_for_scored_and_drawn(cli, tmp_path: Path, server: ChatServer) -> None:
    server.answers = lambda asked: Answer("It is Paris.\nConfidence: 80%")
    given = ["eval", "m", "--base-url", server.url, "--suite", capitals(tmp_path), "--ask-confidence"]
    out = printed(cli(*given, "--out", str(tmp_path / "out")))
    said = [one.body["messages"][-1]["content"] for one in server.asked]
    assert sum("Confidence: N%" in text for text in said) == 2
    assert "Hello?" in said
    found = json.loads((tmp_path / "out" / "scorecard.json").read_text())["confidence"]
    assert (found["stated"], found["gap"]["estimate"]) == (2, pytest.approx(0.3))
    right = found["bins"][0]["right"]
    assert (right["estimate"], right["n"], right["n_groups"]) == (0.5, 2, 2)
    assert "stated confidence: above the share right by" in out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Coverage and accuracy" in page
    assert "% of those answers that are right" in page


def test_failures_are_told_counted_and_asked_again(cli, tmp_path: Path, server: ChatServer) -> None:
    server.answers = lambda asked: Answer(status=400) if "?" in str(asked.body) and asked.number > 20 else echo(asked)
    given = ["eval", "m", "--base-url", server.url, "--suite", suite(tmp_path, 30), "--out", str(tmp_path / "out")]
    code, _, err = cli(*given)
    assert code == 1
    assert "10 of 30 prompts have no answer (10 status_400); the same command asks them again" in err
    assert sum(row["completion"] is None for row in lines(tmp_path / "out" / "completions.jsonl")) == 10
    assert "20 of 30 prompts answered; failed: 10 status_400." in (tmp_path / "out" / "summary.md").read_text()
    server.answers, before = echo, len(server.asked)
    assert cli(*given)[0] == 0
    assert len(server.asked) - before == 10


def kill_and_finish(given: list[str], wait: Callable[[], bool], times: int) -> int:
    command, died = [sys.executable, "-m", "refusal", *given], 0
    for _ in range(times):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not wait():
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            died += 1
        process.wait()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return died


@pytest.mark.slow
def test_a_run_killed_at_ten_random_moments_equals_an_uninterrupted_one(cli, tmp_path, server) -> None:
    def slowly(asked: Asked) -> Answer:
        time.sleep(0.01)
        return echo(asked)

    server.answers, rng = slowly, random.Random(5)
    given = ["eval", "m", "--base-url", server.url, "--suite", suite(tmp_path, 400), "--concurrency", "4"]
    targets = sorted(rng.sample(range(5, 380), 10))

    def reached() -> bool:
        return len(server.asked) >= targets[0] and bool(targets.pop(0))

    assert kill_and_finish([*given, "--out", str(tmp_path / "killed")], reached, 10) == 10
    asked = len(server.asked)
    assert 400 <= asked <= 400 + 10 * (4 + 1)  # what was in flight when it died is asked again, and no more
    assert cli(*given, "--out", str(tmp_path / "whole"))[0] == 0
    for name in WRITTEN:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["m", "--api-key-env", "KEY"], "--api-key-env is for an endpoint; give --base-url, too"),
        (["m", "--base-url", "localhost"], "must be an address such as http://localhost:8000/v1"),
        (["m", "--base-url", "http://127.0.0.1:9/v1", "--adapter", "x"], "--adapter and --template are for a local"),
        (["m", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["m", "--base-url", "http://127.0.0.1:9/v1"], "cannot be reached"),
        (["no/such/model"], "no/such/model"),
        (["m", "--suite", "cor"], "did you mean core?"),
        (["m", "--suite", "public", "--sets", "no-such-folder"], "--sets no-such-folder is not a directory"),
        (["m", "--max-new-tokens", "0"], "max-new-tokens"),
    ],
)
def test_each_mistake_is_one_line(cli, tmp_path, monkeypatch, given, message) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("eval", *given, "--limit", "3")
    said = [line for line in err.splitlines() if not line.startswith("asking")]
    assert (code, out, len(said)) == (2, "", 1), err
    assert message in said[0]


def test_another_evaluation_is_not_overwritten(cli, tmp_path: Path, server: ChatServer) -> None:
    given = ["--base-url", server.url, "--suite", suite(tmp_path, 9), "--out", str(tmp_path / "out")]
    assert cli("eval", "one", *given)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    code, _, err = cli("eval", "other", *given)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "holds another evaluation, of one on mine (9 prompts" in err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
