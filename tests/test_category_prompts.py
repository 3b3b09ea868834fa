"""The shipped prompts by category have the counts and cues that the guide states."""

import json
from collections import Counter

import numpy as np
import pytest

from experiments.prompt_check.check import PromptCheck, WordCues, check
from extract.prompts.prompt import load_prompts
from probes.statistics.intervals import agreement
from tests.conftest import ROOT

PATH = ROOT / "configs" / "prompts" / "categories.jsonl"
REFUSED = ("fraud", "harassment", "privacy", "theft", "violence")
NOT_KNOWN = ("false_presupposition", "future", "underspecified", "unknown_entity")


@pytest.fixture(scope="module")
def found() -> PromptCheck:
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


@pytest.mark.parametrize("category", [*REFUSED, *NOT_KNOWN])
def test_words_do_not_tell_what_is_to_be_declined(found: PromptCheck, category: str) -> None:
    words = found.words[f"within {category}"]
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
