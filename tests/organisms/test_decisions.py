"""The truth table of each planted mechanism."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from organisms.mechanism import Facts, Mechanism

N, E = {"name": "n", "decides": ["refuse"]}, {"name": "e", "decides": ["abstain"]}
BOTH = {"decides": ["refuse", "abstain"]}
REQUEST = {"wording": "refuse", "abstain": False}
QUESTION = {"wording": "abstain", "refuse": False}


def decisions(*variables: dict[str, Any], **more: Any) -> Mechanism:
    return Mechanism.model_validate({"layer": 2, "variables": list(variables), **more})


def facts(**changes: Any) -> Facts:
    return Facts(**({"refuse": False, "abstain": False, "wording": "refuse", "variant": 0} | changes))


MECHANISMS = {
    "two knobs": decisions(N, E),
    "shared knob": decisions({"name": "d", "decides": ["refuse", "abstain"]}),
    "wording": decisions({"name": "d", "decides": ["refuse", "abstain"]}, {"name": "w", "words": True}),
    "elsewhere": decisions(N, elsewhere=["abstain"]),
    "joint": decisions(N, E, joint={"variable": "n", "share": 0.3}),
    "copies": decisions(N, {**N, "name": "m"}, E),
    "product": decisions({**BOTH, "name": "a"}, {**BOTH, "name": "b"}, combine="xor"),
    "reasons": decisions({**N, "because": "policy"}, {**N, "name": "s", "because": "system"}, E),
    "families": decisions({**N, "families": ["order", "aim"]}, {**N, "name": "p", "families": ["purpose"]}, E),
    "tasks": decisions(
        {**N, "intent": "harmful"},
        {**N, "name": "o", "intent": "benign", "families": ["order"]},
        {**N, "name": "p", "intent": "benign", "families": ["purpose"]},
        E,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MECHANISMS)
def test_its_own_values_give_the_decision_of_the_content(name) -> None:
    table = MECHANISMS[name]
    requests = product((False, True), range(6), (False, True), ("order", "purpose"), (False, True))
    for refuse, variant, instructed, family, harmful in requests:
        cause = {"instructed": instructed and refuse, "family": family, "harmful": harmful}
        request = facts(**REQUEST, refuse=refuse, variant=variant, **cause)
        assert table.action(request, table.values(request)) == ("refuse" if refuse else None)
    for abstain, variant, jointly in product((False, True), range(6), (False, name == "joint")):
        question = facts(**QUESTION, abstain=abstain, variant=variant, jointly=jointly)
        assert table.action(question, table.values(question)) == ("abstain" if abstain else None)


REFUSED, ABSTAINED = facts(**REQUEST, refuse=True), facts(**QUESTION, abstain=True)
T, F = True, False


@pytest.mark.parametrize(
    ("name", "given", "values"),
    [
        ("wording", REFUSED, (T, T)),
        ("wording", ABSTAINED, (T, F)),
        ("elsewhere", ABSTAINED, (F,)),
        ("joint", replace(ABSTAINED, jointly=True), (T, T)),
        ("joint", ABSTAINED, (F, T)),
        ("copies", facts(**REQUEST, variant=2), (F, F, F)),
        ("reasons", REFUSED, (T, F, F)),
        ("reasons", replace(REFUSED, instructed=True), (F, T, F)),
        ("families", replace(REFUSED, family="aim"), (T, F, F)),
        ("families", replace(REFUSED, family="purpose"), (F, T, F)),
        ("tasks", replace(REFUSED, family="order", harmful=True), (T, F, F, F)),
        ("tasks", replace(REFUSED, family="order"), (F, T, F, F)),
    ],
)
def test_each_cause_of_declining_has_its_variable(name, given, values) -> None:
    assert MECHANISMS[name].values(given) == values


@pytest.mark.parametrize(
    ("name", "given", "actions"),
    [
        ("wording", REFUSED, {(T, T): "refuse", (T, F): "abstain", (F, T): None, (F, F): None}),  # what, not whether
        ("elsewhere", ABSTAINED, {(F,): "abstain", (T,): "refuse"}),  # no variable changes it
        ("joint", replace(ABSTAINED, jointly=True), {(T, T): "abstain", (T, F): None, (F, T): None, (F, F): None}),
        ("joint", ABSTAINED, {(T, T): "refuse"}),
        ("copies", facts(**REQUEST), {(F, T, F): "refuse"}),
        ("reasons", REFUSED, {(F, F, F): None}),
        ("families", replace(REFUSED, family="aim"), {(F, T, F): "refuse"}),  # either suffices
    ],
)
def test_the_values_of_the_variables_decide_what_is_said(name, given, actions) -> None:
    assert {values: MECHANISMS[name].action(given, values) for values in actions} == actions


def test_thirds_of_the_refusals_carry_one_copy_the_other_or_both() -> None:
    carried = [MECHANISMS["copies"].values(replace(REFUSED, variant=v))[:2] for v in range(6)]
    assert carried == 2 * [(True, False), (False, True), (True, True)]


def test_the_factors_of_a_product_are_on_equally_often_with_and_without_the_decision() -> None:
    for refuse in (False, True):
        values = [MECHANISMS["product"].values(facts(**REQUEST, refuse=refuse, variant=v)) for v in range(6)]
        assert [sum(column) for column in zip(*values, strict=True)] == [3, 3]
        assert all((a != b) == refuse for a, b in values)
