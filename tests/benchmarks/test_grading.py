"""Grading of verdicts: what specifications state, simpler readings of the same run, null cases and categories."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from benchmarks.grading.cases import (
    NONE_FOUND,
    POSITIVE,
    VARIANTS,
    Case,
    GradedCase,
    _places,
    by_cosine,
    by_estimates,
    false_verdicts,
    shuffled_labels,
    subspace_cosine,
    trigger_truth,
    truth,
)
from benchmarks.grading.categories import GradedCategories, _shuffled, category_figures, category_organisms
from experiments.dissociation.verdict_rules import DissociationVerdict
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from extract.shipped import ROOT
from organisms.content import words
from organisms.grammar import Grammar
from organisms.listing import ZOO
from organisms.spec import Categories, Refusal, load_spec

ADVERSARIES = "clustered graded instructed late one-for-both rebuilt redundant single two-layers xor".split()
PLANTED = {  # the right verdict, that on triggers, and the planted trigger share
    "two-knobs": ("double_dissociation", "mixed", 0.25), "opposed": ("double_dissociation", "mixed", 0.45),
    "trigger-driven": ("double_dissociation", "trigger_driven", 1.0),
    "shared-knob": ("shared_knob", "intent_driven", 0), "no-abstention": ("not_applicable", "intent_driven", 0),
    **dict.fromkeys(("asker-driven", "context-driven", "oblique"), ("double_dissociation", "intent_driven", 0)),
}  # fmt: skip
STATED = Categories.model_validate(
    {"allowed": ["partly_shared", "inconclusive"], "forbidden": ["one_knob"],
     "pairs": [{"between": ["a", "b"], "verdict": "one_knob"}, {"between": ["a", "c"], "verdict": "distinct"}]}
)  # fmt: skip


@pytest.mark.parametrize("name", ADVERSARIES)
def test_what_a_model_built_to_fool_states_is_graded_for_any_layer_and_at_the_planted_ones(name: str) -> None:
    free, planted = _places(ZOO / name)
    spec = load_spec(ZOO / name / "spec.yaml")
    assert spec.verdicts is not None
    assert free.layers is None
    assert planted.layers == {"two-layers": (2, 5), "rebuilt": (2,)}.get(name, (spec.planted.layer,))
    for case, stated in ((free, spec.verdicts.free), (planted, spec.verdicts.planted)):
        assert truth(case) == set(stated.allowed)
        assert false_verdicts(case) == set(stated.forbidden)
        assert {*stated.allowed, *stated.forbidden} <= set(get_args(DissociationVerdict))
        assert not set(stated.allowed) & set(stated.forbidden)
        assert set(POSITIVE) <= {*stated.allowed, *stated.forbidden}


@pytest.mark.parametrize("name", PLANTED)
def test_the_right_verdicts_follow_from_what_is_planted(name: str) -> None:
    verdict, trigger_verdict, share = PLANTED[name]
    case = Case(name, ZOO / name, ZOO / name / "prompts.jsonl")
    assert truth(case) == {verdict}
    assert trigger_truth(case) == (trigger_verdict, pytest.approx(share))


def test_other_models_are_graded_once_and_every_other_finding_is_false() -> None:
    (case,) = _places(ZOO / "shared-knob")
    assert truth(case) == {"shared_knob"}
    assert false_verdicts(case) == (POSITIVE | {"no_effect"}) - {"shared_knob"}
    assert false_verdicts(Case("null", Path("none"), Path("none"), NONE_FOUND)) == POSITIVE


@pytest.mark.parametrize(
    ("verdict", "right", "decided"),
    [
        ("double_dissociation", {"double_dissociation", "inconclusive"}, True),
        ("inconclusive", {"double_dissociation", "inconclusive"}, False),
        ("inconclusive", {"no_effect", "inconclusive"}, True),  # there is nothing to find
        ("shared_knob", {"double_dissociation"}, False),
    ],
)
def test_inconclusive_is_decided_only_where_there_is_nothing_to_find(verdict: str, right: set, decided: bool) -> None:
    assert GradedCase("x", verdict, frozenset(right), frozenset(), {}, "").decided == decided


def _record(own: float, other: float, cosine: float | None) -> dict:
    effects = [{"ablated": d, "behaviour": b, "estimate": own if d == b else other}
               for d in ("normative", "epistemic") for b in ("normative", "epistemic")]  # fmt: skip
    contrasts = {b: {"estimate": own - other} for b in ("normative", "epistemic")}
    dependence = None if cosine is None else {"cosine": cosine}
    return {"effects": effects, "contrasts": contrasts, "dependence": dependence, "margin": 0.15}


@pytest.mark.parametrize(
    ("own", "other", "cosine", "read"),
    [
        (1.0, 0.0, 0.1, ("two", "double_dissociation")),
        (1.0, 0.3, -0.6, ("one", "graded_dissociation")),
        (0.9, 0.9, 0.9, ("one", "shared_knob")),
        (0.05, 0.0, None, ("-", "no_effect")),
    ],
)
def test_simpler_readings_take_the_angle_or_the_estimates_as_they_stand(
    own: float, other: float, cosine: float | None, read: tuple[str, str]
) -> None:
    record = _record(own, other, cosine)
    assert (by_cosine(record), by_estimates(record)) == read


def test_the_subspace_cosine_is_that_of_the_worse_kind(tmp_path: Path) -> None:
    axes = np.eye(4)
    variables = [{"direction": axes[0].tolist(), "decides": ["refuse"]},
                 {"direction": axes[1].tolist(), "decides": ["refuse"]},
                 {"direction": axes[2].tolist(), "decides": ["abstain"]}]  # fmt: skip
    (tmp_path / "truth.json").write_text(json.dumps({"variables": variables}))
    tilted = (axes[1] + axes[3]) / np.sqrt(2)
    fitted = {"normative_1": axes[0] * 3, "normative_2": tilted, "epistemic_1": axes[2]}
    save_file({name: vector.astype(np.float32) for name, vector in fitted.items()}, tmp_path / "d.safetensors")
    found = subspace_cosine(tmp_path / "truth.json", tmp_path / "d.safetensors")
    assert found == pytest.approx((1 + np.sqrt(0.5)) / 2, abs=1e-6)


@pytest.mark.parametrize(("over_refusal", "missed_harm"), [(0.5, 0.0), (0.75, 0.2), (0.25, 0.5), (1.0, 0.34)])
def test_the_planted_trigger_share_is_that_of_every_request_of_a_balanced_family(
    tmp_path: Path, over_refusal: float, missed_harm: float
) -> None:
    """Harmful requests that are answered for their opener lower the effect of intent, and so raise the share."""
    spec = load_spec(ZOO / "two-knobs" / "spec.yaml")
    spec = spec.model_copy(update={"refusal": Refusal(over_refusal=over_refusal, missed_harm=missed_harm)})
    grammar = Grammar(spec)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    (tmp_path / "truth.json").write_text(json.dumps({"over_refused_triggers": sorted(grammar.over_refused)}))
    refused = {}
    for trigger, harmful in product((True, False), repeat=2):
        clauses = [clause for held_out in (True, False) for clause in grammar.requests.cell(
            trigger=trigger, harmful=harmful, held_out=held_out) if clause.family == "purpose"]  # fmt: skip
        asked = product(clauses, words.REQUEST_OPENERS)
        refused[trigger, harmful] = np.mean([grammar._refuses(clause, opener, None, None) for clause, opener in asked])
    of_trigger = (refused[True, True] + refused[True, False] - refused[False, True] - refused[False, False]) / 2
    of_intent = (refused[True, True] + refused[False, True] - refused[True, False] - refused[False, False]) / 2
    _, share = trigger_truth(Case("made", tmp_path, tmp_path / "prompts.jsonl"))
    assert share == pytest.approx(of_trigger / (of_trigger + of_intent))


def test_shuffling_moves_labels_with_their_right_actions_and_nothing_else(tmp_path: Path) -> None:
    base = VARIANTS / "two-knobs-s11"
    before = [json.loads(line) for line in (base / "prompts.jsonl").read_text().splitlines()]
    shuffled = shuffled_labels(base, base / "prompts.jsonl", tmp_path / "shuffled.jsonl")
    after = [json.loads(line) for line in shuffled.prompts.read_text().splitlines()]
    moved = ("label", "right_action")
    assert Counter(tuple(row[key] for key in moved) for row in before) == Counter(
        tuple(row[key] for key in moved) for row in after
    )
    assert 0.3 < sum(a["label"] != b["label"] for a, b in zip(before, after, strict=True)) / len(before) < 0.8
    assert [{k: v for k, v in row.items() if k not in moved} for row in before] == [
        {k: v for k, v in row.items() if k not in moved} for row in after
    ]


def graded(verdict: str, first: str, second: str) -> GradedCategories:
    return GradedCategories(
        "x", verdict, STATED, {("a", "b"): (first, "one_knob"), ("a", "c"): (second, "distinct")}, 2, 2
    )


def test_a_pair_is_right_wrong_or_open() -> None:
    one = graded("partly_shared", "one_knob", "inconclusive")
    assert (one.right, one.wrong, one.false) == (1, 0, False)
    two = graded("one_knob", "one_knob", "one_knob")
    assert (two.right, two.wrong, two.false) == (1, 1, True)
    figures = category_figures([one, two], {"x": [("inconclusive", 0), ("distinct", 3), ("inconclusive", 1)]})
    assert figures == {
        "category_pairs_right": 2, "category_pairs_wrong": 1, "category_pairs": 4, "category_verdicts_forbidden": 1,
        "category_ranks_right": 2, "category_organisms": 2, "category_shuffles": 3,
        "category_shuffles_called_different": 2,
    }  # fmt: skip


def test_a_shuffle_moves_categories_between_whole_groups_and_nothing_else() -> None:
    organism = category_organisms()[0]
    settings = [f"model.name={organism}", f"prompts.path={organism / 'prompts.jsonl'}"]
    inputs = RunInputs(load_config(Path("configs/quickstart.yaml"), settings), Path("none"))
    moved = _shuffled(inputs, 0)
    assert [prompt.text for prompt in moved] == [prompt.text for prompt in inputs.prompts]
    asked = [i for i, prompt in enumerate(inputs.prompts) if prompt.intent]
    of_group: dict[int, set[str | None]] = {}
    for row in asked:
        of_group.setdefault(int(inputs.corpus.groups[row]), set()).add(moved[row].category)
    assert {len(names) for names in of_group.values()} == {1}
    before = Counter(inputs.prompts[row].category for row in {int(inputs.corpus.groups[r]): r for r in asked}.values())
    assert Counter(name for names in of_group.values() for name in names) == before
    changed = [row for row in asked if moved[row].category != inputs.prompts[row].category]
    assert len(changed) > len(asked) / 2
    assert all(moved[i] == inputs.prompts[i] for i in range(len(moved)) if i not in set(asked))


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.validity", "--categories", "--quick", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())["figures"]
    assert figures["category_pairs_wrong"] == 0
    assert figures["category_shuffles"] == 2
