"""Organisms built to fool the method: what their specifications state, and simpler readings of the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks.grading.cases import (
    NONE_FOUND,
    POSITIVE,
    Case,
    _places,
    by_cosine,
    by_estimates,
    false_verdicts,
    subspace_cosine,
    truth,
)
from benchmarks.validity import GradedCase
from experiments.dissociation.verdict_rules import DissociationVerdict
from organisms.listing import SPECS, ZOO
from organisms.spec import load_spec

ADVERSARIES = [path.stem for path in sorted(SPECS.glob("*.yaml"))
               if (spec := load_spec(path)).verdicts is not None and spec.categories is None]  # fmt: skip


def test_the_ten_of_the_documentation_state_verdicts() -> None:
    assert ADVERSARIES == [
        "clustered", "graded", "instructed", "late", "one-for-both", "rebuilt", "redundant", "single", "two-layers",
        "xor",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ADVERSARIES)
def test_every_stated_verdict_is_one_and_none_is_both_allowed_and_forbidden(name: str) -> None:
    verdicts = load_spec(SPECS / f"{name}.yaml").verdicts
    assert verdicts is not None
    for place in (verdicts.planted, verdicts.free):
        assert {*place.allowed, *place.forbidden} <= set(get_args(DissociationVerdict))
        assert not set(place.allowed) & set(place.forbidden)
        assert set(POSITIVE) <= {*place.allowed, *place.forbidden}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_a_model_is_graded_with_free_choice_of_the_layer_and_at_the_planted_layers_alone(name: str) -> None:
    free, planted = _places(ZOO / name)
    spec = load_spec(ZOO / name / "spec.yaml")
    assert spec.verdicts is not None
    assert free.layers is None
    assert truth(free) == set(spec.verdicts.free.allowed)
    assert false_verdicts(free) == set(spec.verdicts.free.forbidden)
    assert truth(planted) == set(spec.verdicts.planted.allowed)
    assert planted.layers == {"two-layers": (2, 5), "rebuilt": (2,)}.get(name, (spec.planted.layer,))


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
    case = GradedCase("x", verdict, frozenset(right), frozenset(), {}, "", {}, None, "-", "-", "mixed", "mixed", None,
                      (0, 1))  # fmt: skip
    assert case.decided == decided


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
