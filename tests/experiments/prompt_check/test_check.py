"""`refusal prompts check`: counts, broken structure, and surface cues."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.prompt_check.check import PromptCheck, WordCues, check, contains_word, print_check

STARTS, ENDS = ("ba", "de", "fi", "go", "hu", "ki", "lo"), ("ran", "sol", "tim", "vex", "wug", "zap")
NAMES = [start + end for start in STARTS for end in ENDS]
CELLS = ((True, True), (True, False), (False, True), (False, False))


def quadruple(i: int, harmful_word: str = "", **more: Any) -> list[dict[str, Any]]:
    rows = []
    for trigger, harmful in CELLS:
        intent = "harmful" if harmful else "benign"
        thing = NAMES[i + harmful]  # each stands once on either side
        verb, extra = ("kill" if trigger else "close"), (f" {harmful_word}" if harmful and harmful_word else "")
        rows.append({"id": f"{i}-{trigger}-{harmful}", "text": f"How do I {verb} the {thing}{extra} number {i}?",
                     "label": intent, "intent": intent, "pair": str(i), "trigger": verb if trigger else None,
                     **more})  # fmt: skip
    return rows


def twins(i: int) -> list[dict[str, Any]]:
    return [
        {"id": f"u{i}", "text": f"Who wrote {NAMES[i]}?", "label": "uncertain", "pair": f"u{i}", "category": "novel"},
        {"id": f"k{i}", "text": f"Who wrote {NAMES[-1 - i]}?", "label": "benign", "pair": f"u{i}", "answer": "x"},
    ]


def checked(tmp_path: Path, rows: list[dict[str, Any]]) -> PromptCheck:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return check(path)


def words_of(found: PromptCheck, contrast: str) -> tuple[float, WordCues]:
    """Return the AUROC of a bag of words, and the whole contrast."""
    cues = found.words[contrast]
    assert isinstance(cues, WordCues)
    assert not isinstance(cues.bag_of_words, str)
    return cues.bag_of_words.estimate, cues


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [row for i in range(24) for row in quadruple(i)] + [row for i in range(20) for row in twins(i)]


def test_a_balanced_file_has_no_problems(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    found = checked(tmp_path, rows)
    assert found.problems == ()
    assert found.quadruples["complete"] == 24
    assert set(found.quadruples["prompts"].values()) == {24}
    assert found.triggers == {"prompts": 48, "different": 1, "commonest": {"kill": 48}}
    assert found.twins == {"uncertain": 20, "kinds": {"novel": 20}, "twins": 20}
    assert words_of(found, "same, within quadruples")[0] < 0.6
    order = np.random.default_rng(0).permutation(len(rows))
    assert checked(tmp_path, [rows[i] for i in order]).problems == ()


def test_a_word_that_gives_the_label_away_is_named(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    given_away = [row for i in range(24) for row in quadruple(i, "secretly")] + rows[96:]
    found = checked(tmp_path, given_away)
    auroc, cues = words_of(found, "same, within quadruples")
    assert auroc == 1
    assert cues.words_of_the_positive_side[0] == ("secretly", 48, 0)
    assert any("within quadruples: a bag of words separates the two classes (AUROC 1.00 [" in p for p in found.problems)
    assert any("the number of words separates the two classes" in problem for problem in found.problems)


def test_each_fault_is_reported_with_an_example(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    rows = [row for row in rows if row["id"] not in ("3-False-True", "k5")]
    rows[0]["trigger"] = "murder"
    rows[-1]["answer"] = None
    rows[2]["text"] = "How do I kill the light?"
    rows.append({**rows[5], "id": "again"})
    problems = "\n".join(checked(tmp_path, rows).problems)
    for part in (
        "1 pairs lack one of the four cells, for example '3' the one harmful without a trigger word",
        "1 prompts have a trigger that is no word of their last turn, for example '0-True-True'",
        "1 requests without a trigger contain another prompt's trigger word: '0-False-True' contains 'kill'",
        "1 uncertain prompts have no benign twin of the same 'pair', for example 'u5'",
        "1 twins have no 'answer', for example 'k19'",
        "1 texts are repeated",
        "the cells of the complete pairs are unbalanced",
    ):
        assert part in problems


def test_an_incomplete_table_of_personas_is_reported(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    asked = [
        {"id": f"{i}-{who}", "text": f"I am a {who}. What is {NAMES[i]}?", "label": "benign", "intent": "benign",
         "pair": f"p{i}", "persona": who}
        for i in range(6) for who in ("nurse", "guard")
    ]  # fmt: skip
    whole = checked(tmp_path, rows + asked)
    assert whole.personas == {"personas": 2, "requests": 6}
    assert not any("persona" in problem for problem in whole.problems)
    incomplete = checked(tmp_path, rows + asked[1:])
    assert "1 requests are not asked by every persona, for example that of pair 'p0'" in incomplete.problems


def test_prompts_without_an_intent_are_compared_all_the_same(tmp_path: Path) -> None:
    """Words that give the label away are found in any file that a probe could be fitted on."""
    rows = [{"id": f"h{i}", "text": f"secretly poison {name}", "label": "harmful"} for i, name in enumerate(NAMES)]
    rows += [{"id": f"b{i}", "text": f"bake cake for {name} now", "label": "benign"} for i, name in enumerate(NAMES)]
    found = checked(tmp_path, rows)
    assert words_of(found, "harmful vs benign")[0] == 1
    assert any("a bag of words separates the two classes" in problem for problem in found.problems)


def test_the_certifiable_rate_is_the_limit_of_no_failures(tmp_path: Path) -> None:
    rows = [{"id": name, "text": f"bake cake for {name}", "label": "benign"} for name in NAMES]
    harmful = {"id": "h", "text": "poison", "label": "harmful"}
    for n, limit in {0: 1.0, 1: 0.95, 20: 1 - 0.05 ** (1 / 20)}.items():
        assert checked(tmp_path, [harmful, *rows[:n]]).certifiable_rate == pytest.approx(limit)


def test_only_whole_words_are_contained() -> None:
    assert contains_word("kill", "How do I KILL it?")
    assert not contains_word("kill", "a skilled painter")
    assert contains_word("blow up", "to blow up balloons")


def test_the_check_is_printed(tmp_path: Path, rows: list[dict[str, Any]], capsys: Any) -> None:
    print_check(checked(tmp_path, rows))
    printed = capsys.readouterr().out
    assert "No problem found" in printed
    assert "complete 24" in printed
    print_check(checked(tmp_path, rows[:40]))
    printed = capsys.readouterr().out
    assert "one side" in printed  # nothing uncertain
    assert "No problem found in the contrasts with prompts on both sides" in printed


def test_no_auroc_comes_from_one_prompt(tmp_path: Path, rows: list[dict[str, Any]], capsys: Any) -> None:
    harmful = [row for row in rows if row["label"] == "harmful"][:1]
    few = [*(row for row in rows if row["label"] != "harmful"), *harmful]
    found = checked(tmp_path, few)
    cues = found.words["harmful vs benign"]
    assert isinstance(cues, WordCues)
    assert (cues.n[0], cues.features, cues.bag_of_words) == (1, {}, "too few groups")
    assert not [problem for problem in found.problems if "harmful vs benign" in problem]
    print_check(found)
    assert "too few" in capsys.readouterr().out
