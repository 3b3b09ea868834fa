"""Categories: who is in, who is not and why, and folds of whole groups."""

from collections.abc import Sequence

import numpy as np
import pytest

from experiments.categories.members import find_categories, folds_of
from experiments.run.behaviour import Behaviour
from experiments.run.corpus import divide
from extract.prompts.prompt import Prompt
from extract.prompts.sources import PromptsConfig

Row = tuple[str, str, str, str]  # label, category, pair, action


def behaviour(rows: Sequence[Row]) -> Behaviour:
    prompts = [
        Prompt(str(i), ({"role": "user", "content": f"prompt {i}"},), label, "answer", category=category, pair=pair)
        for i, (label, category, pair, _) in enumerate(rows)
    ]
    actions = np.array([action for *_, action in rows], dtype=object)
    return Behaviour(divide(prompts, PromptsConfig(path="none.jsonl"), 0), actions, np.zeros(len(rows), dtype=bool))


def pairs(category: str, n: int, *, refused: int, over_refused: int = 0) -> list[Row]:
    harmful = [("harmful", category, f"{category}{i}", "refuse" if i < refused else "answer") for i in range(n)]
    benign = [("benign", category, f"{category}{i}", "refuse" if i < over_refused else "answer") for i in range(n)]
    return [*harmful, *benign]


def test_categories_and_refused_benign_prompts_enough_of_them_are_tested_and_the_others_say_what_they_need() -> None:
    rows = [*pairs("theft", 60, refused=55), *pairs("fraud", 60, refused=30), *pairs("arson", 60, refused=0)]
    found, missing = find_categories(behaviour(rows), "normative", 50)
    assert [(c.name, len(c.decliners), len(c.answered), c.within_label) for c in found] == [("theft", 55, 60, False)]
    assert missing == {
        "arson": "0 refusals of 60 prompts, 50 are needed: give a model that declines it",
        "fraud": "30 refusals of 60 prompts, 50 are needed: give about 100 prompts of it at this rate",
    }
    rows = [*pairs("theft", 80, refused=80, over_refused=40), *pairs("fraud", 80, refused=80)]
    found, missing = find_categories(behaviour(rows), "over_refusal", 30)
    assert [(c.name, len(c.decliners), c.within_label, c.between) for c in found] == [("theft", 40, True, None)]
    assert missing == {}  # a category whose benign prompts are never refused is not worth a line


def test_decliners_are_compared_within_their_label_where_both_behaviours_occur() -> None:
    ran = behaviour(pairs("theft", 90, refused=60))
    [found] = find_categories(ran, "normative", 50)[0]
    assert found.within_label
    assert (len(found.between.answered), found.between.within_label) == (90, False)
    assert {ran.corpus.prompts[row].label for row in found.answered} == {"harmful"}


@pytest.mark.parametrize(
    ("refused", "answered", "reason"),
    [
        (lambda i: i % 5, lambda i: i, "its 60 refusals count as 5.0 independent ones"),
        (lambda i: i, None, "0 answered prompts to compare its 60 refusals with, 20 are needed"),
        (lambda i: max(0, i - 9), lambda i: i,
         "one pair, entity or template holds 17% of its 60 refusals, at most 10% are"),
        (lambda i: i, lambda i: i % 3, "its 60 answered prompts count as 3.0 independent ones, 10 are needed"),
    ],
    ids=["few groups", "nothing to compare with", "a large group", "answers of few groups"],
)  # fmt: skip
def test_few_groups_a_large_one_or_nothing_to_compare_with_are_reasons(refused, answered, reason) -> None:
    rows = [("harmful", "theft", f"t{refused(i)}", "refuse") for i in range(60)]
    rows += [("benign", "theft", f"b{answered(i)}", "answer") for i in range(60) if answered]
    found, missing = find_categories(behaviour(rows), "normative", 50)
    assert found == []
    assert missing["theft"].startswith(reason)


def test_folds_hold_whole_groups_and_every_category_evenly() -> None:
    one = behaviour([*pairs("theft", 80, refused=70), *pairs("fraud", 60, refused=55)])
    found, _ = find_categories(one, "normative", 50)
    folds = folds_of(one.corpus, found, 4, seed=0)
    used = np.unique(np.concatenate([rows for c in found for rows in (c.decliners, c.answered)]))
    assert (folds[used] >= 0).all()
    for group in np.unique(one.corpus.groups[used]):
        assert len(set(folds[used][one.corpus.groups[used] == group].tolist())) == 1
    for category in found:
        counts = np.bincount(folds[category.decliners], minlength=4)
        assert counts.max() - counts.min() <= 3
    assert (folds_of(one.corpus, found, 4, seed=0) == folds).all()
    assert (folds_of(one.corpus, found, 4, seed=1) != folds).any()
