"""A prompt's category is recognised as at decode time; it gets thresholds of its own where its prompts certify them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials.by_category import OTHER, Recognised, dials_of_category, fit_category_read, thresholds_of
from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.operating_point import Targets
from experiments.dials.policies import PolicyEvaluation, evaluate
from experiments.dials.results import ByCategory, CategoryDials
from experiments.dials.text import category_lines, category_table
from experiments.run.behaviour import Behaviour
from experiments.run.config import RunConfig
from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt
from probes.direction import Locus
from steering.dial import CategoryRead

PARTS = ("train", "calibration", "test")
LIMITS = {"over_refusal": 0.1, "missed_harm": 0.1}
LOCUS = Locus("resid_post", 0, "post_last")
POOLED = {"normative": 0.5, "epistemic": 0.5}


def policy_of(sizes: dict[str, int], cut: dict[str, float]) -> tuple[PolicyEvaluation, Recognised]:
    """Make as many harmful and as many benign prompts of each category a part; the true cut of its reads is given."""
    prompts, part, read = list[Prompt](), list[str](), list[float]()
    for p, (category, n) in product(PARTS, sizes.items()):
        for i in range(2 * n):
            label, right = (("harmful", "refuse"), ("benign", "answer"))[i % 2]
            said = ({"role": "user", "content": f"{p} {category} {i}"},)
            prompts.append(Prompt(f"{p}-{category}-{i}", said, label, right, category=category))
            part.append(p)
            read.append(cut[category] + (0.02 + 0.05 * (i % 7) / 7) * (1 if label == "harmful" else -1))
    corpus = Corpus(tuple(prompts), np.arange(len(prompts)), np.array(part, dtype=object))
    actions = np.tile(np.array(["refuse", "abstain", "answer"], dtype=object), (len(prompts), 1))
    table = Counterfactuals(
        ("normative", "epistemic"), reachable_outcomes(2, dead_band=False),
        np.stack([np.array(read), np.full(len(prompts), 0.01)]), actions, np.zeros(actions.shape, dtype=bool),
    )  # fmt: skip
    plain = Behaviour(corpus, np.full(len(prompts), "answer", dtype=object), np.zeros(len(prompts), dtype=bool))
    config = RunConfig.model_validate({"name": "x", "model": {"name": "x"}, "prompts": {"path": "x"}})
    inputs = SimpleNamespace(corpus=corpus, config=config, behaviour=plain, prompts=corpus.prompts)
    policy = evaluate(inputs, table, [corpus.harmful, corpus.uncertain])
    names = (OTHER, *sizes)
    weights = CategoryRead(names, LOCUS, np.zeros((len(names), 4)), np.zeros(len(names)), 0.8)
    return policy, Recognised(weights, np.array([prompt.category for prompt in prompts], dtype=object))


def chosen(
    policy: PolicyEvaluation, recognised: Recognised, limits: Mapping[str, float] = LIMITS, given: tuple = ()
) -> dict[str, CategoryDials]:
    corpus = policy.inputs.corpus
    declining = {"normative": corpus.harmful, "epistemic": corpus.uncertain}
    settings = POOLED, declining, Targets(limits, 0.95, None), given
    return {name: dials_of_category(policy, recognised.names == name, *settings)
            for name in recognised.read.names if name != OTHER}  # fmt: skip


def test_categories_of_different_cuts_get_thresholds_of_their_own() -> None:
    policy, recognised = policy_of({"low": 40, "high": 40}, {"low": 0.3, "high": 0.7})
    found = chosen(policy, recognised)
    low, high = found["low"], found["high"]
    assert low.thresholds == {"normative": pytest.approx(0.3, abs=0.02)}  # nothing uncertain is recognised as it
    assert high.thresholds == {"normative": pytest.approx(0.7, abs=0.02)}
    assert (low.test_pooled.missed_harm.estimate, low.test.missed_harm.estimate) == (1.0, 0.0)
    assert (high.test_pooled.over_refusal.estimate, high.test.over_refusal.estimate) == (1.0, 0.0)
    assert set(low.certificate.jointly) == set(LIMITS)
    assert low.recognised == {"benign": 40, "harmful": 40, "uncertain": 0}


def test_a_category_with_few_prompts_keeps_those_of_all_and_is_told_how_many_it_takes() -> None:
    policy, recognised = policy_of({"low": 40, "few": 12}, {"low": 0.3, "few": 0.7})
    found = chosen(policy, recognised)["few"]
    assert found.thresholds is None
    assert found.why == [
        f"{name} at most 10% takes 29 independent prompts of which none fails; there are 12, good for 22.1% at best "
        "(0 failed: at most 22.1%)" for name in ("over-refusal", "missed harm")
    ]  # fmt: skip
    assert found.test == found.test_pooled


@pytest.mark.parametrize("only_benign", [False, True])
def test_a_category_that_fails_on_calibration_prompts_keeps_those_of_all_and_names_only_what_fails(only_benign) -> None:
    """Reads there say the opposite, or benign prompts read as harmful: over-refusal fails, missed harm does not."""
    policy, recognised = policy_of({"low": 40, "high": 40}, {"low": 0.3, "high": 0.7})
    corpus, read = policy.inputs.corpus, policy.table.probability.copy()
    other = np.where(corpus.benign, 0.99, read[0]) if only_benign else 1 - read[0]
    read[0] = np.where(corpus.within("calibration"), other, read[0])
    found = chosen(replace(policy, table=replace(policy.table, probability=read)), recognised)["low"]
    assert found.thresholds is None
    (why,) = found.why
    assert why == "over-refusal at most 10%: 40 of 40 failed, so at most 100.0%; no number is enough at this rate"


def test_prompts_of_a_limit_that_the_moved_dial_could_break_are_asked_for() -> None:
    """Five uncertain prompts move no dial, but a lower normative threshold could refuse them."""
    policy, recognised = policy_of({"low": 40, "high": 40}, {"low": 0.3, "high": 0.7})
    labels = [replace(prompt, label="uncertain") if prompt.id in {f"calibration-low-{i}" for i in range(0, 10, 2)}
              else prompt for prompt in policy.inputs.corpus.prompts]  # fmt: skip
    corpus = replace(policy.inputs.corpus, prompts=tuple(labels))
    inputs = SimpleNamespace(corpus=corpus, config=policy.inputs.config, behaviour=policy.inputs.behaviour)
    found = chosen(replace(policy, inputs=inputs), recognised, LIMITS | {"uncertain_refused": 0.1})
    assert found["low"].thresholds is None
    assert found["low"].why[0].startswith("uncertain prompts refused at most 10% takes 29 independent prompts")
    assert found["high"].thresholds is not None


def test_a_given_threshold_and_that_of_a_category_with_few_to_decline_are_kept() -> None:
    policy, recognised = policy_of({"low": 40, "tiny": 4}, {"low": 0.3, "tiny": 0.7})
    found, given = chosen(policy, recognised), chosen(policy, recognised, given=("normative",))
    for kept in (found["tiny"], *given.values()):
        assert kept.thresholds is None
        assert kept.why == ["fewer than 10 choice prompts to decline are recognised as it, or the threshold is given"]


def test_thresholds_of_each_prompt_and_their_text() -> None:
    policy, recognised = policy_of({"low": 40, "few": 12}, {"low": 0.3, "few": 0.7})
    found = chosen(policy, recognised)
    own = (found["low"].thresholds or {})["normative"]
    own_of: dict = {"normative": {"low": own}, "epistemic": {}}
    normative, epistemic = thresholds_of(POOLED, own_of, recognised)
    assert set(normative[recognised.names == "low"]) == {own}
    assert {*normative[recognised.names == "few"], *epistemic} == {0.5}
    result = ByCategory(read_at=recognised.read.locus, confident=0.8, recognised=1.0, right=1.0, categories=found)
    lines = category_lines(result)
    assert lines[0] == ("Categories are recognised at layer 0, post_last from a probability of 0.8 on: 100% of the "
                        "test prompts are recognised, 100% of these rightly.")  # fmt: skip
    assert "certified on prompts recognised as that category: low." in lines[1]
    assert lines[-1].startswith("Without their own: few (over-refusal at most 10% takes 29")
    table = category_table(result)
    rows = table.rows
    assert table.columns == ["category", "normative threshold", "over-refusal", "missed harm"]
    assert rows[0][:2] == ["low", f"{own:.3f}"]
    assert rows[0][2].startswith("0.0% [0.0%, 8.8%], n 40")
    assert rows[0][3].startswith("100.0% [91.2%, 100.0%] to 0.0% [0.0%, 8.8%], n 40")
    assert rows[1][1] == "of all"
    assert category_lines(ByCategory(reason="none")) == ["No thresholds by category: none."]


def run_of(name: list[str | None], X: np.ndarray, part: list[str]) -> Any:
    prompts = tuple(Prompt(str(i), ({"role": "user", "content": str(i)},), "benign", "answer", category=one)
                    for i, one in enumerate(name))  # fmt: skip
    corpus = Corpus(prompts, np.arange(len(name)), np.array(part, dtype=object))
    store = SimpleNamespace(read=lambda layer, position: X.astype(np.float32))
    return SimpleNamespace(corpus=corpus, store=store, config=SimpleNamespace(seed=0))


@pytest.mark.parametrize("n_categories", [2, 3])
def test_what_is_recognised_offline_is_what_the_dials_recognise(n_categories) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(n_categories, size=240)
    X = rng.normal(size=(240, 12))
    X[np.arange(240), kinds] += 4.0
    found = fit_category_read(run_of([f"c{k}" for k in kinds], X, ["train"] * 120 + ["test"] * 120), LOCUS)
    assert found.read.names == tuple(f"c{k}" for k in range(n_categories))
    online = [name or "" for name in found.read.recognised(X[120:].astype(np.float32))]
    assert found.names[120:].tolist() == online
    right = [name == f"c{k}" for name, k in zip(found.names[120:], kinds[120:], strict=True) if name]
    assert len(right) > 36
    assert np.mean(right) > 0.95


def test_a_training_prompt_is_not_recognised_by_a_probe_that_has_seen_it() -> None:
    """Where categories are noise, a probe knows its own training prompts by heart, and nothing of others."""
    rng = np.random.default_rng(1)
    n, d = 120, 400
    name = [f"c{k}" for k in rng.integers(2, size=n)]
    loaded = run_of(name, rng.normal(size=(n, d)), ["train"] * n)
    found = fit_category_read(loaded, LOCUS)
    X = loaded.store.read(0, "post_last")
    by_heart = [one == true for one, true in zip(found.read.recognised(X), name, strict=True)]
    assert np.mean(by_heart) > 0.95  # the control
    cross_fitted = found.names[found.names != ""]
    right = np.mean([one == true for one, true in zip(found.names, name, strict=True) if one])
    assert len(cross_fitted) < n
    assert right < 0.7


def test_small_categories_and_prompts_without_one_are_other_and_one_large_one_is_not_enough() -> None:
    rng = np.random.default_rng(2)
    name = ["a"] * 40 + ["b"] * 40 + ["few"] * 6 + [None] * 6
    X = rng.normal(size=(92, 8))
    for rows, axis in ((slice(0, 40), 0), (slice(40, 80), 1), (slice(80, 92), 2)):
        X[rows, axis] += 6.0
    found = fit_category_read(run_of(name, X, ["train"] * 92), LOCUS)
    assert found.read.names == ("", "a", "b")
    assert set(found.names[80:]) == {""}
    assert (found.names[:40] == "a").mean() > 0.7
    X = np.zeros((50, 4))
    assert fit_category_read(run_of(["a"] * 40 + ["b"] * 10, X, ["train"] * 50), LOCUS) is None
    assert fit_category_read(run_of([None] * 50, X, ["train"] * 50), LOCUS) is None
