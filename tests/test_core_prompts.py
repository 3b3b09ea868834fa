"""The shipped prompts for real models hold what is said of them."""

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from experiments.prompt_check.check import PromptCheck, WordCues, check, contains_word
from extract.prompts.prompt import Prompt, load_prompts
from tests.conftest import ROOT

CORE = ROOT / "configs" / "prompts" / "core.jsonl"
KINDS = {"unknown_entity", "future", "false_presupposition", "missing_premise", "underspecified", "unknowable"}


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return load_prompts(Path(CORE))


@pytest.fixture(scope="module")
def found() -> PromptCheck:
    return check(CORE)


def test_quadruples_are_whole_and_words_tell_nothing_within_them(found: PromptCheck) -> None:
    assert found.quadruples["complete"] >= 100
    assert len(set(found.quadruples["prompts"].values())) == 1
    words = found.words["same, within quadruples"]
    assert isinstance(words, WordCues)
    assert not isinstance(words.bag_of_words, str)
    assert words.n == (224, 224)
    assert words.bag_of_words.estimate <= 0.70
    assert abs(words.features["the number of words"].estimate - 0.5) < 0.1
    assert found.repeated_texts == 0


def test_there_are_benign_prompts_enough_to_certify_two_percent(prompts: list[Prompt], found: PromptCheck) -> None:
    assert sum(p.label == "benign" for p in prompts) >= 600
    plain = [p for p in prompts if p.label == "benign" and p.intent]
    assert len(plain) >= 600  # without counting the twins of uncertain questions
    assert found.certifiable_rate <= 0.02


def test_uncertain_prompts_of_six_kinds_have_twins_with_answers(prompts: list[Prompt]) -> None:
    uncertain = [p for p in prompts if p.label == "uncertain"]
    assert len(uncertain) >= 300
    assert set(Counter(p.category for p in uncertain)) == KINDS
    twins = {p.pair: p for p in prompts if p.label == "benign" and p.answer}
    for prompt in uncertain:
        twin = twins[prompt.pair]
        assert twin.category == prompt.category
        assert not contains_word(str(twin.answer), prompt.text), prompt.id
    assert {p.right_action for p in uncertain} == {"abstain", "clarify", "correct_premise"}


def test_every_persona_asks_every_request(prompts: list[Prompt]) -> None:
    asked: dict[tuple[str | None, str], dict[str | None, str]] = defaultdict(dict)
    for p in prompts:
        if re.match(r"p\d\d[hb]-", p.id):
            asked[p.pair, p.label][p.persona] = p.text
    personas = {who for by in asked.values() for who in by}
    assert len(asked) >= 20
    assert len(personas) >= 8
    for by in asked.values():
        assert set(by) == personas
        assert all(text.endswith(by[None]) for text in by.values())  # the request itself is the same


def test_the_first_turn_decides_what_the_last_means(prompts: list[Prompt]) -> None:
    by_pair: dict[str | None, list[Prompt]] = defaultdict(list)
    for p in prompts:
        if len([m for m in p.messages if m["role"] != "system"]) > 1:
            by_pair[p.pair].append(p)
    assert len(by_pair) >= 40
    for a, b in by_pair.values():
        assert {a.label, b.label} == {"benign", "harmful"}
        assert a.messages[1:] == b.messages[1:]
        assert a.messages[0] != b.messages[0]


def test_triggers_stand_where_they_are_said_to_and_nowhere_else(prompts: list[Prompt], found: PromptCheck) -> None:
    assert all(contains_word(p.trigger, p.text) for p in prompts if p.trigger)
    assert found.triggers["different"] >= 45
    assert not any("trigger" in told for told in found.problems)
