"""Invalid specifications are reported, and the shipped ones load."""

from typing import Any

import pytest
import yaml

from extract.errors import UserError
from extract.shipped import named_yaml
from organisms.listing import SPECS
from organisms.spec import load_spec
from tests.organisms.conftest import ASKED, declare

N, E = {"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}
M = N | {"name": "n"}


def _planted(*variables: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"layer": 0, "variables": list(variables), **more}


def _cosine(value: float, *between: str) -> dict[str, Any]:
    return _planted(N, E, cosines=[{"between": list(between), "value": value}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"refusal": {"over_refusall": 0.5}}, "no such key: refusal.over_refusall; did you mean refusal.over_refusal?"),
        ({"refusal": {"rule": "words"}}, "refusal.rule: expected one of intent, trigger, asker, got 'words'"),
        ({"refusal": {"over_refusal": 1.5}}, "refusal.over_refusal: expected a number of at most 1, got 1.5"),
        ({"name": "Two Knobs"}, "name: expected small letters, digits and hyphens"),
        ({"planted": _planted()}, "planted.variables: expected at least 1 entry"),
        ({"planted": _planted({**N, "words": True}, E)}, "variable 'normative' needs either `decides`"),
        ({"planted": _planted({**E, "because": "policy"}, N)}, "`because` needs `decides: [refuse]`"),
        ({"planted": _planted(N, {**E, "name": "normative"})}, "planted: planted variables must have"),
        ({"planted": _planted(N, {**E, "decides": ["refuse", "abstain"]})}, "must decide the same ways of declining"),
        ({"planted": _planted({**N, "because": "policy"}, M, E)}, "a different `because`, `families` or `intent` each"),
        ({"families": {"aims": 1}}, "no such family: aims; there are order, purpose, aim, setting, protect"),
        (
            {"planted": _planted({**N, "families": ["aim"]}, {**M, "intent": "benign"}, E), "families": {"aim": 1}},
            "2 planted variables decide refusals of benign requests of the family 'aim'; exactly one must",
        ),
        ({"planted": _planted(N, E, combine="xor")}, "combine 'xor' needs two variables for each way of declining"),
        (
            {"planted": _planted(N, E, elsewhere=["abstain"])},
            "['abstain'] cannot be decided by a variable and elsewhere",
        ),
        ({"planted": _planted(N, E, joint={"variable": "x", "share": 0.3})}, "planted.joint names a planted variable"),
        ({"planted": _planted(N, E, blank_below=True)}, "planted.blank_below needs a layer below planted.layer"),
        ({"planted": _planted(N, E, rebuilt=1)}, "planted.layer must be below the last layer"),
        ({"refusal": {"questions": 0.4}}, "refusal.questions needs a planted variable that decides both"),
        (
            {"planted": _planted(N), "abstention": {"rule": "never"}, **ASKED},
            "elicited has nothing to change: abstention.rule is 'never' and refusal.questions is 0",
        ),
        ({"elicited": ASKED["elicited"]}, "elicited needs verdicts: they do not follow"),
        ({"context": {"system": 0.5}, **ASKED}, "elicited cannot be combined with context.system"),
        ({"refusal": {"rule": "asker"}}, "refusal.rule 'asker' needs abstention.rule 'person'"),
        ({"planted": _planted(N)}, "abstention.rule is 'unknown' but no planted variable decides 'abstain'"),
        ({"planted": _planted(E)}, "no planted variable decides 'refuse'"),
        ({"planted": _cosine(0.5, "normative", "normative")}, "each cosine must be between two different variables"),
        ({"refusal": {"rule": "trigger", "over_refusal": 0.5}}, "cannot be combined with over_refusal"),
        ({"refusal": {"rule": "trigger"}, "context": {"asker": 0.5}}, "combined with context.asker"),
        ({"model": {"d_model": 36, "n_heads": 4}}, "d_model must be a multiple of twice n_heads"),
        ({"planted": _cosine(0.5, "normative", "ethics")}, "cosines name variables that are not planted: ['ethics']"),
    ],
)
def test_a_specification_that_cannot_be_built_names_the_reason(tmp_path, changes, message) -> None:
    path = tmp_path / "organism.yaml"
    path.write_text(yaml.safe_dump(declare(**changes)), encoding="utf-8")
    with pytest.raises(UserError) as error:
        load_spec(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_and_an_unknown_name_are_users_errors(tmp_path) -> None:
    with pytest.raises(UserError, match=r"organism specification not found: .*none\.yaml"):
        load_spec(tmp_path / "none.yaml")
    with pytest.raises(UserError, match=r"no organism named 'three-knobs'; did you mean .* choose from .*two-knobs"):
        named_yaml("three-knobs", SPECS, "organism")


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_specifications_load_and_ask_for_something(path) -> None:
    spec = load_spec(path)
    assert spec.name == path.stem
    assert spec.description
    assert spec.targets.flips is not None or spec.targets.elsewhere_unchanged is not None
    assert load_spec(named_yaml(spec.name, SPECS, "organism")) == spec


def test_the_layers_that_hold_coordinates(organism) -> None:
    six = {"n_layers": 6, "d_model": 32, "n_heads": 2, "d_mlp": 32}
    apart = organism(model=six, planted={"layer": 4, "variables": [N, {**E, "layer": 1}]})
    assert apart.planted.layers == (1, 4)
    assert organism(model=six, planted={"layer": 2, "variables": [N, E], "rebuilt": 4}).planted.layers == (2, 4)
    late, blank = (
        organism(model=six, planted={"layer": 3, "variables": [N, E], **more}).planted.blank_places
        for more in ({"token": 1}, {"blank_below": True})
    )
    assert (late, blank) == (tuple((layer, 0) for layer in range(4)), ((2, 0),))


@pytest.mark.parametrize(("role", "decider", "at"), [("after", 0, ()), ("carries", 5, (0, 12)), ("against", 12, (0,))])
def test_a_thought_has_its_decision_before_within_or_at_its_end(organism, role, decider, at) -> None:
    planted = organism(planted=_planted(N, E, thought=role)).planted
    assert planted.decider == decider
    assert planted.blank_places == tuple((0, token) for token in at)
    with pytest.raises(ValueError, match="thought cannot be combined with"):
        organism(planted=_planted(N, E, thought=role, token=1))
