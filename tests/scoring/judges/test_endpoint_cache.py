"""The endpoint judge's cache and record: a second run sends no requests, a killed one resumes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from extract.errors import UserError
from extract.shipped import ROOT
from scoring.judges import CompletionToJudge
from tests.support.chat_server import Answer, Asked, ChatServer, by_rules
from tests.support.endpoint_judge import by_completion, judge_of, one, rows


def test_a_second_run_asks_nothing_and_says_the_same(server: ChatServer, tmp_path: Path) -> None:
    first, second = (judge_of(server, tmp_path / "cache.sqlite") for _ in range(2))
    judged = list(first.judge_all(rows(60)))
    assert list(second.judge_all(rows(60))) == judged
    assert len(server.asked) == 60
    record = second.record().to_dict()
    assert (record["asked"], record["cached"], record["input_tokens"], record["retried"]) == (0, 60, 0, 0)


def test_failures_are_asked_again(server: ChatServer, tmp_path: Path) -> None:
    server.answers = by_completion(broken=lambda asked: Answer(status=500))
    said = [*rows(5), CompletionToJudge("broken")]
    assert [j.action is None for j in judge_of(server, tmp_path / "c", retries=0).judge_all(said)] == [False] * 5 + [
        True
    ]
    server.answers, before = by_rules, len(server.asked)
    assert None not in [j.action for j in judge_of(server, tmp_path / "c").judge_all(said)]
    assert server.completions()[before:] == ["broken"]


@pytest.mark.parametrize(
    ("keys", "asked_again"),
    [
        ({"model": "judge-2"}, 1),
        ({"rubric": "Another.\nIn JSON."}, 1),
        ({"temperature": 1.0}, 1),
        ({"seed": 1}, 1),
        ({"extra_body": {"top_k": 1}}, 1),
        ({"concurrency": 1, "retries": 9, "timeout_s": 5, "price_per_million_input": 1}, 0),
    ],
)
def test_what_matters_to_the_judgement_is_in_the_key(
    server: ChatServer, tmp_path: Path, keys: dict[str, Any], asked_again: int
) -> None:
    one(judge_of(server, tmp_path / "cache"))
    one(judge_of(server, tmp_path / "cache", **keys))
    assert len(server.asked) == 1 + asked_again


KILLED = """
import sys
from pathlib import Path
from scoring.judges import CompletionToJudge
from scoring.judges.config import EndpointConfig
from scoring.judges.endpoint import EndpointJudge
judge = EndpointJudge(EndpointConfig(base_url=sys.argv[1], model="judge-1", concurrency=2), Path(sys.argv[2]))
for judgement in judge.judge_all(CompletionToJudge(f"I can't help with {n}.") for n in range(60)):
    pass
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(server: ChatServer, tmp_path: Path) -> None:
    def slowly(asked: Asked) -> Answer:
        time.sleep(0.02)
        return by_rules(asked)

    server.answers, cache = slowly, tmp_path / "cache.sqlite"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, server.url, str(cache)], cwd=ROOT, env=environment)
    while len(server.answered) < 20:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.1)
    answered = len(server.answered)
    assert answered < 60
    with sqlite3.connect(cache) as kept:
        [(n_kept,)] = kept.execute("SELECT count(*) FROM judgements")
    assert answered - 2 <= n_kept <= answered  # two were in flight
    server.answers, before = by_rules, len(server.asked)
    judge = judge_of(server, cache)
    judgements = list(judge.judge_all(CompletionToJudge(f"I can't help with {n}.") for n in range(60)))
    assert [j.action for j in judgements] == ["refuse"] * 60
    assert len(server.asked) - before == 60 - n_kept
    assert judge.record().cached == n_kept
    assert set(Counter(server.completions()[before:]).values()) == {1}


def test_an_unusable_cache_is_reported_before_the_first_request(server: ChatServer, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a cache " * 100)
    with pytest.raises(UserError, match="file is not a database"):
        judge_of(server, tmp_path / "notes")
    assert server.asked == []


# -- the record --------------------------------------------------------------------------------------------------------


def test_the_record_says_what_it_took(server: ChatServer) -> None:
    judge = judge_of(server, price_per_million_input=2.0, price_per_million_output=10.0)
    list(judge.judge_all(rows(50)))
    record = judge.record().to_dict()
    json.dumps(record, allow_nan=False)
    assert (record["judge"], record["model"]) == ("endpoint", "judge-1")
    assert (record["input_tokens"], record["output_tokens"]) == (5000, 500)
    assert record["cost"] == pytest.approx(5000 * 2 / 1e6 + 500 * 10 / 1e6)
    assert len(str(record["rubric"])) == 64
    assert judge_of(server, rubric="Another.\nJSON.").record().rubric != record["rubric"]


def test_without_prices_or_counted_tokens_there_is_no_cost(server: ChatServer) -> None:
    unpriced = judge_of(server)
    one(unpriced)
    assert (unpriced.record().input_tokens, unpriced.record().cost) == (100, None)
    server.answers = lambda asked: Answer('{"action": "refuse"}', usage=None)
    unmetered = judge_of(server, price_per_million_input=2.0, price_per_million_output=10.0)
    assert one(unmetered).action == "refuse"
    assert unmetered.record().cost is None
