"""AUROCs against correctness: a planted difference is found, an absent one is not; missing values are reported."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.run.config import UncertaintyConfig
from experiments.uncertainty.observation import Observation, Sample
from experiments.uncertainty.record import (
    DIFFERS,
    MEASURES,
    REFUSED,
    UNCHECKED,
    auroc_p,
    compare_labels,
    knowledge_label,
    measure_uncertainty,
    relabel_prompts,
)
from experiments.uncertainty.results import MeasureAuroc, UncertaintyMeasures
from experiments.uncertainty.stage import remarks, threshold_of_answered
from experiments.uncertainty.text import auroc_cell
from extract.prompts.prompt import Prompt, make_prompt, prompt_row


def sample(action: str = "answer", right: bool | None = None, cluster: int = 0) -> Sample:
    return Sample("text", action, right, cluster, 3, -1.0, True)


def seen(
    name: str, correct: bool | None, entropy: float, samples: list[Sample] | None = None, **changes: Any
) -> Observation:
    label = "uncertain" if correct is None else "benign"
    one = Observation(name, label, "text", "answer", correct, entropy, entropy, 1 - entropy / 3, -entropy, -entropy / 4,
                      0.0, 0, tuple(samples or [sample(right=correct)] * 4))  # fmt: skip
    return replace(one, **changes)


def asked(observed: list[Observation], pairs: int = 1) -> list[Prompt]:
    return [Prompt(o.id, ({"role": "user", "content": o.id},), o.label, "answer", pair=f"pair {i // pairs}")
            for i, o in enumerate(observed)]  # fmt: skip


def questions(n: int, gap: float, seed: int = 0) -> list[Observation]:
    entropies = np.random.default_rng(seed).normal(1 + gap * (np.arange(n) % 2 == 0), 0.4).clip(0, 2.2)
    return [seen(f"q{i}", bool(i % 2), float(entropy)) for i, entropy in enumerate(entropies)]


def auroc(measured: UncertaintyMeasures, measure: str = "semantic_entropy", population: str = "all") -> MeasureAuroc:
    return measured.populations[population].measures[measure]


def test_entropy_that_goes_with_being_wrong_is_found_and_shuffled_it_is_not() -> None:
    observed = questions(60, 1.0)
    found = auroc(measure_uncertainty(observed, asked(observed), threshold_of_answered(observed), 0))
    assert found.auroc > 0.85
    assert found.p_adjusted < 0.05
    assert found.auroc_ci[0] > 0.5
    order = np.random.default_rng(1).permutation(60)
    shuffled = [replace(one, correct=observed[j].correct) for one, j in zip(observed, order, strict=True)]
    nothing = auroc(measure_uncertainty(shuffled, asked(shuffled), threshold_of_answered(shuffled), 0))
    assert nothing.auroc_ci[0] < 0.5 < nothing.auroc_ci[1]
    assert nothing.p > 0.05


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.slow
def test_p_values_are_level_where_scores_follow_groups_and_not_labels(mixed: bool) -> None:
    """Groups of three share most of their score, and their label too unless they are mixed."""
    rng, p = np.random.default_rng(0), []
    groups = np.arange(20).repeat(3)
    for _ in range(120):
        score = rng.standard_normal(20).repeat(3) + 0.3 * rng.standard_normal(60)
        y = rng.random(60) < 0.5 if mixed else (rng.permutation(20) < 10).repeat(3)
        p.append(auroc_p(y, score, groups, rng))
    assert np.mean(np.array(p) <= 0.05) <= 0.11  # 0.05 expected; more is seen in 1 of 300 such tests
    assert 0.35 <= np.mean(p) <= 0.65


def test_rows_taken_for_groups_would_find_what_is_not_there() -> None:
    """The broken control of the test above: without groups, chance is called a finding far too often."""
    rng, p = np.random.default_rng(0), []
    for _ in range(60):
        score = rng.standard_normal(12).repeat(8) + 0.1 * rng.standard_normal(96)
        y = (rng.permutation(12) < 6).repeat(8)
        p.append(auroc_p(y, score, np.arange(96), rng))
    assert np.mean(np.array(p) <= 0.05) > 0.3


def test_the_populations_are_what_they_say() -> None:
    observed = [seen("right", True, 0.0), seen("wrong", False, 1.0), seen("invented", None, 0.0),
                seen("abstained", None, 0.0, action="abstain", hedging=1.0),
                seen("refused", True, 0.0, action="refuse"),
                seen("unread", True, 0.0, action=None, hedging=None)]  # fmt: skip
    record = measure_uncertainty(observed, asked(observed), 0.5, 0)
    counts = {name: (of.wrong_or_unknowable, of.right) for name, of in record.populations.items()}
    assert counts == {"all": (3, 1), "known_answer": (1, 1), "committed": (2, 1)}
    assert record.left_out == {"refused": 1, "unjudged": 1}
    assert auroc(record, "thinking_tokens").reason == "it is 0 for every question"
    cells = {(c.hedged, c.high_entropy): c.right for c in record.verbalised_and_statistical.cells}
    assert sum(cell.n or 0 for cell in cells.values()) == 4
    assert (cells[False, False].n, cells[False, False].estimate) == (2, 0.5)
    assert cells[True, True].n == 0


def test_where_nothing_is_wrong_there_is_no_auroc_and_it_is_said() -> None:
    observed = [seen(f"q{i}", True, i / 5) for i in range(5)]
    for measure in MEASURES:
        found = auroc(measure_uncertainty(observed, asked(observed), 0.3, 0), measure)
        assert (found.auroc, found.reason) == (None, "no question here is wrong or unknowable")
    assert auroc(measure_uncertainty([], [], None, 0)).reason == "no question here is wrong or unknowable"


# -- labels ------------------------------------------------------------------------------------------------------------

RIGHT, WRONG = sample(right=True), sample(right=False)


@pytest.mark.parametrize(
    ("one", "knows", "why"),
    [
        (seen("a", True, 0.0, [RIGHT] * 3 + [WRONG]), True, "the known answer is stated"),
        (seen("a", True, 2.0, [RIGHT] * 3 + [WRONG]), True, "the known answer is stated"),
        (seen("a", False, 0.0, [RIGHT] + [WRONG] * 3), False, "the known answer is not stated"),
        (seen("a", True, 0.0, [RIGHT] + [WRONG] * 3), None, DIFFERS),
        (seen("a", False, 0.0, [RIGHT] * 3 + [WRONG]), None, DIFFERS),
        (seen("a", True, 0.0, [RIGHT, RIGHT, WRONG, WRONG]), True, "the known answer is stated"),
        (seen("a", False, 0.0, [sample("abstain", False)] * 4), False, "the known answer is not stated"),
        (seen("a", None, 0.0, [sample("abstain")] * 3 + [sample()]), False, "most samples abstain"),
        (seen("a", None, 0.9), False, "entropy is high"),
        (seen("a", None, 0.1), None, UNCHECKED),
        (seen("a", None, 0.9, [sample("refuse")] * 3 + [sample()]), None, REFUSED),
        (seen("a", True, 0.0, [sample("refuse", False)] * 3 + [RIGHT]), None, REFUSED),
    ],
)  # fmt: skip
def test_the_rule_of_labels(one: Observation, knows: bool | None, why: str) -> None:
    told = knowledge_label(one, 0.5)
    assert told.knows is knows
    assert told.why.startswith(why)


def test_prompts_get_the_labels_and_the_rest_stays() -> None:
    given = {"a": True, "b": False, "c": None}
    fields = {"text": "who?", "answer": "x", "acceptable": ["clarify"]}
    labels = {"a": "uncertain", "b": "benign", "c": "uncertain", "d": "harmful"}
    prompts = [make_prompt({"id": name, "label": label} | fields, "here") for name, label in labels.items()]
    told = {name: replace(knowledge_label(seen(name, True, 0.0), None), knows=knows) for name, knows in given.items()}
    found = relabel_prompts(prompts, told)
    assert [(p.id, p.label, p.right_action, p.acceptable) for p in found] == [
        ("a", "benign", "answer", ()), ("b", "uncertain", "abstain", ()), ("d", "harmful", "refuse", ("clarify",))
    ]  # fmt: skip
    assert [make_prompt(prompt_row(p), "here") for p in found] == found


def test_a_twin_that_is_not_known_is_left_out_and_never_uncertain() -> None:
    labels = {"a": ("uncertain", "p"), "b": ("benign", "p"), "c": ("benign", "q"), "d": ("benign", "p")}
    rows = [{"id": name, "label": label, "pair": pair, "text": name} for name, (label, pair) in labels.items()]
    known = {name: replace(knowledge_label(seen(name, True, 0.0), None), knows=name == "d") for name in labels}
    found = relabel_prompts([make_prompt(row, "here") for row in rows], known)
    assert [(p.id, p.label) for p in found] == [("a", "uncertain"), ("c", "uncertain"), ("d", "benign")]


def test_agreement_counts_what_got_a_label_and_says_what_did_not() -> None:
    observed = [seen("a", True, 0.0), seen("b", False, 0.0), seen("c", None, 0.9), seen("d", None, 0.0)]
    told = [knowledge_label(one, 0.5) for one in observed]
    record = compare_labels(observed, asked(observed), told, 0.5)
    assert record.left_out == {UNCHECKED: 1}
    by_file = {"benign": {"benign": 1, "uncertain": 1}, "uncertain": {"uncertain": 1, "left_out": 1}}
    assert record.file_to_model == by_file
    assert (record.labelled.estimate, record.labelled.n) == (0.75, 4)
    assert record.agreement_with_file.estimate == pytest.approx(2 / 3)
    assert record.with_known_answer.estimate == 0.5
    assert record.by_samples_alone.estimate == 0.75  # an invention told every time is taken for knowledge


def test_few_samples_are_said_to_be_few() -> None:
    said = remarks(UncertaintyConfig(samples=3), [seen("a", True, 0.0)])
    assert "3 samples are few: an alternative answer given one time in three is missed on 30% of questions" in said[0]
    assert "entropy takes only 3 values" in said[0]
    assert remarks(UncertaintyConfig(samples=10), [seen("a", True, 0.0)]) == []
    cut = seen("a", True, 0.0, [replace(sample(), ended=False)] * 10)
    assert "10 of 10 samples were cut" in remarks(UncertaintyConfig(samples=10), [cut])[0]


def test_an_auroc_takes_five_of_each_class() -> None:
    def measured(n_wrong: int) -> MeasureAuroc:
        observed = [seen(f"w{i}", False, 1.0 + i) for i in range(n_wrong)]
        observed += [seen(f"r{i}", True, 0.01 * i) for i in range(9)]
        return auroc(measure_uncertainty(observed, asked(observed), 0.5, 0))

    few, found = measured(1), measured(5)
    assert (few.auroc, few.n_positive, few.n_negative) == (None, 1, 9)
    assert few.reason == "too few (1 wrong or unknowable, 9 right; 5 of each are needed)"
    assert auroc_cell(few) == "too few"
    assert found.auroc == 1.0
