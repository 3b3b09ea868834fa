"""A site's own phrases are refusals for any judge, in order, and are told in its record."""

from pathlib import Path

import pytest

from extract.errors import UserError
from judging.judge_by_name import open_judge
from scoring.judges import CompletionToJudge
from scoring.judges.rules import RuleJudge
from scoring.judges.site_phrases import SitePhrases, read_phrases
from tests.support.one_line import printed

SAID = ("Lima.", "That\u2019s one for your fish tank!", "I don't know.", "<think>That's one for</think>Oslo.",
        "That's one for your fish tank!", "that's one for your fish tank!")  # fmt: skip


def test_a_phrase_is_a_refusal_and_the_rest_is_judged_in_order(tmp_path: Path) -> None:
    (tmp_path / "ours.txt").write_text("\nThat's one for\nAsk our staff\n", encoding="utf-8")
    judge = open_judge("rules", also_refuses=tmp_path / "ours.txt")
    assert isinstance(judge, SitePhrases)
    judged = list(judge.judge_all(CompletionToJudge(text) for text in SAID))
    assert [one.action for one in judged] == ["answer", "refuse", "abstain", "answer", "refuse", "answer"]
    assert judged[1].evidence == "a phrase of the site: That's one for"
    assert judge.record().model_dump()["also_refuses"] == ["That's one for", "Ask our staff"]
    assert [one.action for one in RuleJudge().judge_all(map(CompletionToJudge, SAID))][1] == "answer"  # the control
    assert [one.action for one in judge.judge_all(map(CompletionToJudge, SAID[1:2] * 3))] == ["refuse"] * 3
    assert not list(judge.judge_all([]))


def test_a_file_without_phrases_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(UserError, match=r"^--also-refuses .*empty\.txt has no phrase; write one a line"):
        read_phrases(tmp_path / "empty.txt")
    with pytest.raises(UserError, match=r"^--also-refuses .*none\.txt cannot be read: No such file"):
        read_phrases(tmp_path / "none.txt")


def test_the_command_counts_them(tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    rows = [f'{{"id": "{i}", "label": "benign", "text": "capital?", "completion": "{text}"}}'
            for i, text in enumerate(["Lima.", "Our bots are shy today."])]  # fmt: skip
    (tmp_path / "said.jsonl").write_text("\n".join(rows))
    (tmp_path / "ours.txt").write_text("Our bots are shy")
    given = ("score", str(tmp_path / "said.jsonl"), "--out", str(tmp_path / "out"), "--json")
    assert '"over_refusal"' in cli(*given)[1]
    out = printed(cli(*given, "--also-refuses", str(tmp_path / "ours.txt")))
    assert '"Our bots are shy"' in out
    assert '"action": "refuse"' in (tmp_path / "out" / "scored.jsonl").read_text()
    code, _, err = cli(*given, "--also-refuses", str(tmp_path / "none.txt"))
    assert code == 2
    assert "none.txt cannot be read" in "".join(err.splitlines()).replace("  ", " ")
