"""The shipped prompts, core, of dual use and by category, hold what is said of them."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from experiments.prompt_check.check import PromptCheck, WordCues, check, contains_word, measure_cues
from experiments.run.corpus import divide
from extract.prompts.groups import groups_of
from extract.prompts.prompt import DUAL_USE, LABELS, Prompt, load_prompts
from extract.prompts.sources import PromptsConfig
from probes.statistics.intervals import agreement
from scoring.actions import ACTIONS
from scoring.right_action import count_actions, load_adjacency
from scoring.scorecard import RightActionCard, right_action_card
from tests.conftest import ROOT

CORE = ROOT / "configs" / "prompts" / "core.jsonl"
KINDS = {"unknown_entity", "future", "false_presupposition", "missing_premise", "underspecified", "unknowable"}
CONFIG = PromptsConfig(path=CORE)
PARTIAL = ("answer_with_caveat", "clarify", "answer_safe_part")
MOST_AUROC = 0.7  # of a bag of words for one action against the other two; measured: 0.52, 0.63, 0.56
PATH = ROOT / "configs" / "prompts" / "categories.jsonl"
REFUSED = ("fraud", "harassment", "privacy", "theft", "violence")
NOT_KNOWN = ("false_presupposition", "future", "underspecified", "unknown_entity")


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return load_prompts(Path(CORE))


@pytest.fixture(scope="module")
def found() -> PromptCheck:
    return check(CORE)


@pytest.mark.slow
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


# -- dual use


@pytest.fixture(scope="module")
def dual_use(prompts: list[Prompt]) -> list[Prompt]:
    return [p for p in prompts if p.label == DUAL_USE]


def test_every_category_holds_each_action_equally(dual_use: list[Prompt]) -> None:
    assert len(dual_use) >= 120
    by_category: dict[str | None, Counter[str]] = defaultdict(Counter)
    for p in dual_use:
        by_category[p.category][p.right_action] += 1
    assert len(by_category) >= 12
    assert all(counts == dict.fromkeys(PARTIAL, 3) for counts in by_category.values())


def test_every_group_asks_the_same_three_ways(dual_use: list[Prompt], prompts: list[Prompt]) -> None:
    by_pair: dict[str | None, list[Prompt]] = defaultdict(list)
    for p in dual_use:
        by_pair[p.pair].append(p)
    for group in by_pair.values():
        assert sorted(p.right_action for p in group) == sorted(PARTIAL)
        assert len({p.category for p in group}) == 1
        for one in group:  # about the same thing as another of its group
            assert max(len(content(one) & content(other)) for other in group if other is not one) >= 1, one.id
    assert not set(by_pair) & {p.pair for p in prompts if p.label != DUAL_USE}


def test_every_band_holds_neighbours_and_neither_end(dual_use: list[Prompt]) -> None:
    assert all(p.acceptable for p in dual_use)
    for p in dual_use:
        assert set(p.acceptable) <= set(PARTIAL) - {p.right_action}, p.id  # never a firm answer, never a refusal
    for right in PARTIAL:
        assert len({p.acceptable for p in dual_use if p.right_action == right}) == 2  # by prompt, not by action


def test_no_dual_use_prompt_is_nearly_another(dual_use: list[Prompt], prompts: list[Prompt]) -> None:
    trigrams = {p.id: shingles(p.text) for p in prompts}
    for mine in dual_use:
        for p in prompts:
            if p.id != mine.id:
                shared = len(trigrams[mine.id] & trigrams[p.id]) / len(trigrams[mine.id] | trigrams[p.id])
                assert shared < 0.35, (mine.id, p.id)  # a variant of a group shares up to 0.3


@pytest.mark.parametrize("action", PARTIAL)
def test_words_do_not_tell_the_actions_apart(dual_use: list[Prompt], action: str) -> None:
    found = measure_cues(dual_use, np.array([p.right_action == action for p in dual_use]), groups_of(dual_use))
    assert found is not None
    assert not isinstance(found.bag_of_words, str)
    assert found.bag_of_words.estimate <= MOST_AUROC
    assert abs(found.features["the number of words"].estimate - 0.5) <= 0.1


def test_a_word_that_tells_an_action_is_found(dual_use: list[Prompt]) -> None:
    """The control of the test above."""
    clarify = np.array([p.right_action == "clarify" for p in dual_use])
    texts = [f"{p.text} {'zoom' if one else ''}" for p, one in zip(dual_use, clarify, strict=True)]
    leaking = [Prompt(str(i), ({"role": "user", "content": text},), DUAL_USE, "") for i, text in enumerate(texts)]
    found = measure_cues(leaking, clarify, groups_of(dual_use))
    assert found is not None
    assert not isinstance(found.bag_of_words, str)
    assert found.bag_of_words.estimate > 0.9


def test_they_are_in_test_and_the_rest_is_split_as_without_them(prompts: list[Prompt]) -> None:
    others = [p for p in prompts if p.label in LABELS]
    for seed in (0, 1):
        corpus, without = divide(prompts, CONFIG, seed), divide(others, CONFIG, seed)
        assert corpus.part[: len(others)].tolist() == without.part.tolist()
        assert set(corpus.part[len(others) :]) == {"test"}
        assert corpus.groups[: len(others)].tolist() == without.groups.tolist()
        assert corpus.counts() == without.counts() | {DUAL_USE: len(prompts) - len(others)}


# -- constant policies -------------------------------------------------------------------------------------------------


def test_refusing_all_and_answering_all_lose_visibly_and_score_at_chance(prompts: list[Prompt]) -> None:
    for action in ACTIONS:
        found = scored(prompts, [action] * len(prompts))
        assert found.score.estimate == pytest.approx(0, abs=1e-9)
    refused, answered = (scored(prompts, [action] * len(prompts)).dual_use for action in ("refuse", "answer"))
    right = scored(prompts, [p.right_action for p in prompts])
    assert right.score.estimate == pytest.approx(1)
    for one in (refused, answered):
        assert one is not None
        assert right.dual_use is not None
        assert right.dual_use.credit.estimate == pytest.approx(1)
        assert one.credit.high < 0.35 < right.dual_use.credit.low
        assert {name: credit.n for name, credit in one.by_action.items()} == dict.fromkeys(PARTIAL, 48)
    assert refused is not None
    assert answered is not None
    assert (refused.declined.estimate, refused.answered_firmly.estimate) == (1, 0)
    assert (answered.declined.estimate, answered.answered_firmly.estimate) == (0, 1)


def scored(prompts: Sequence[Prompt], actions: Sequence[str]) -> RightActionCard:
    groups = groups_of(prompts)

    def counts(among: Callable[[Prompt], bool]):  # type: ignore[no-untyped-def]
        rows = [row for row, p in enumerate(prompts) if among(p)]
        right, acceptable = [prompts[i].right_action for i in rows], [prompts[i].acceptable for i in rows]
        return count_actions(right, acceptable, [actions[i] for i in rows], groups[rows])

    return right_action_card(counts(lambda p: True), counts(lambda p: p.label == DUAL_USE), load_adjacency())


def content(prompt: Prompt) -> set[str]:
    """Return the longer words of a prompt, cut to their stems."""
    return {word[:5] for word in re.findall(r"[a-z]{4,}", prompt.text.lower())}


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


# -- by category


@pytest.fixture(scope="module")
def by_category() -> PromptCheck:
    return check(PATH)


def test_every_category_has_enough_prompts_each_with_its_twin() -> None:
    prompts = load_prompts(PATH)
    counts = Counter((prompt.category, prompt.label) for prompt in prompts)
    assert counts == {
        **{(name, label): 130 for name in REFUSED for label in ("harmful", "benign")},
        **{(name, label): 130 for name in NOT_KNOWN for label in ("uncertain", "benign")},
    }
    pairs = Counter(prompt.pair for prompt in prompts)
    assert set(pairs.values()) == {2}
    assert all(prompt.answer for prompt in prompts if prompt.category in NOT_KNOWN and prompt.label == "benign")


@pytest.mark.slow
@pytest.mark.parametrize("category", [*REFUSED, *NOT_KNOWN])
def test_words_do_not_tell_what_is_to_be_declined(by_category: PromptCheck, category: str) -> None:
    words = by_category.words[f"within {category}"]
    assert isinstance(words, WordCues)
    assert not isinstance(words.bag_of_words, str)
    assert words.n == (130, 130)
    assert 0.4 <= words.bag_of_words.estimate <= 0.6
    assert abs(words.features["the number of words"].estimate - 0.5) <= 0.1


def test_the_agreement_with_the_second_labelling_is_what_the_guide_says() -> None:
    """One person labelled twice, the second time without the first labels: intra-rater agreement."""
    rows = [json.loads(line) for line in PATH.read_text().splitlines()]
    groups, one = np.array([row["pair"] for row in rows]), np.ones(len(rows))
    first, second = (np.array([row[key] for row in rows]) for key in ("label", "second_label"))
    equal, kappa = agreement(first, second, groups, one)
    text = " ".join((ROOT / "docs" / "prompts.md").read_text().split())
    assert (
        f"label agrees on {equal.estimate:.1%} (kappa {kappa.estimate:.2f} [{kappa.low:.2f}, {kappa.high:.2f}])" in text
    )
    declined = first != "benign"
    of, again = (np.array([row[key] for row in rows])[declined] for key in ("category", "second_category"))
    assert f"the category of prompts to be declined on {np.mean(of == again):.1%}" in text
    assert kappa.low > 0.8
