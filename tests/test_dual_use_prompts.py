"""The shipped dual-use prompts: balanced groups, bands of acceptable actions, and words that give nothing away."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from experiments.prompt_check.check import measure_cues
from experiments.run.corpus import make_corpus
from extract.prompts.groups import groups_of
from extract.prompts.prompt import DUAL_USE, LABELS, Prompt, load_prompts
from extract.prompts.sources import PromptsConfig
from scoring.actions import ACTIONS
from scoring.right_action import count_actions, load_adjacency
from scoring.scorecard import RightActionCard, right_action_card
from tests.conftest import ROOT

CORE = ROOT / "configs" / "prompts" / "core.jsonl"
CONFIG = PromptsConfig(path=CORE)
PARTIAL = ("answer_with_caveat", "clarify", "answer_safe_part")
MOST_AUROC = 0.7  # of a bag of words for one action against the other two; measured: 0.52, 0.63, 0.56


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return load_prompts(CORE)


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
        corpus, without = make_corpus(prompts, CONFIG, seed), make_corpus(others, CONFIG, seed)
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
