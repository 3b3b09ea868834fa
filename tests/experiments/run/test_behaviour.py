"""The samples of a write direction: declined against answered within what is most alike, as the prompts allow."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.run.behaviour import MIN_BASELINE, Behaviour, write_samples
from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt


def behaving(declined_of: dict[str, tuple[int, int]], categories: int) -> Behaviour:
    """Make training prompts of some labels, so many of them refused and answered, spread over categories."""
    prompts, actions = list[Prompt](), list[str]()
    for label, (refused, answered) in declined_of.items():
        for i in range(refused + answered):
            one = Prompt(f"{label} {i}", ({"role": "user", "content": f"{label} {i}"},), label, "answer")  # type: ignore[arg-type]
            prompts.append(replace(one, category=f"c{i % categories}"))
            actions.append("refuse" if i < refused else "answer")
    n = len(prompts)
    corpus = Corpus(tuple(prompts), np.arange(n), np.array(["train"] * n, dtype=object))
    return Behaviour(corpus, np.array(actions, dtype=object), np.zeros(n, dtype=bool))


BOTH = {"benign": (30, 50), "harmful": (40, 20), "uncertain": (0, 60)}
ONE_LABEL = {"benign": (30, 30), "harmful": (30, 0), "uncertain": (0, 9)}
NO_LABEL = {"benign": (0, 40), "harmful": (40, 0), "uncertain": (0, 9)}


@pytest.mark.parametrize(
    ("declined_of", "categories", "within_label", "declined", "n"),
    [
        pytest.param(ONE_LABEL, 3, True, {f"benign/c{i}/": 10 for i in range(3)}, 60, id="a category holds both"),
        pytest.param(BOTH, 20, True, {"benign": 30, "harmful": 40}, 140, id="no category holds five of each"),
        pytest.param(BOTH, 40, True, {"benign": 30, "harmful": 40}, 140, id="categories of three or four prompts"),
        pytest.param(NO_LABEL, 3, False, {"all": 40}, 80, id="no label holds both"),
    ],
)
def test_strata_are_categories_or_labels_and_only_else_all(
    declined_of: dict[str, tuple[int, int]], categories: int, within_label: bool, declined: dict[str, int], n: int
) -> None:
    samples = write_samples(behaving(declined_of, categories), "normative")
    assert samples is not None
    assert samples.within_label == within_label
    assert {name: int(samples.declined[samples.strata == name].sum()) for name in set(samples.strata)} == declined
    assert len(samples.rows) == n


def test_too_few_declined_ones_are_none() -> None:
    few = {"benign": (0, 40), "harmful": (MIN_BASELINE - 1, 5), "uncertain": (0, 9)}
    assert write_samples(behaving(few, 3), "normative") is None


def test_labels_are_contrasted_where_the_probe_stage_chose_so() -> None:
    behaviour = behaving({"benign": (30, 50), "harmful": (40, 0), "uncertain": (0, 60)}, 1)
    within = write_samples(behaviour, "normative")
    between = write_samples(replace(behaviour, by_label=frozenset({"normative"})), "normative")
    assert within is not None
    assert between is not None
    assert (within.within_label, between.within_label) == (True, False)
    assert set(within.strata) == {"benign/c0/"}
    assert set(between.strata) == {"all"}
    labels = [behaviour.corpus.prompts[row].label for row in between.rows]
    assert {label for label, no in zip(labels, between.declined, strict=True) if no} == {"harmful"}
    assert {label for label, no in zip(labels, between.declined, strict=True) if not no} == {"benign"}


def test_directions_are_fitted_on_prompts_whose_thought_was_captured() -> None:
    behaviour = behaving(BOTH, 1)
    every = write_samples(behaviour, "normative")
    assert every is not None
    captured = np.ones(len(behaviour.actions), dtype=bool)
    captured[every.rows[::5]] = False
    some = write_samples(replace(behaviour, captured=captured), "normative")
    assert some is not None
    assert {*some.rows.tolist()} == {*every.rows.tolist()} - {*every.rows[::5].tolist()}
    assert write_samples(replace(behaviour, captured=~captured), "normative") is None
