"""The truth table of each planted mechanism."""

from __future__ import annotations

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
def test_its_own_values_give_the_decision_of_the_content(name: str) -> None:
    table = MECHANISMS[name]
    requests = product((False, True), range(6), (False, True), ("order", "purpose"), (False, True))
    for refuse, variant, instructed, family, harmful in requests:
        cause = {"instructed": instructed and refuse, "family": family, "harmful": harmful}
        request = facts(**REQUEST, refuse=refuse, variant=variant, **cause)
        assert table.action(request, table.values(request)) == ("refuse" if refuse else None)
    for abstain, variant, jointly in product((False, True), range(6), (False, name == "joint")):
        question = facts(**QUESTION, abstain=abstain, variant=variant, jointly=jointly)
        assert table.action(question, table.values(question)) == ("abstain" if abstain else None)


def test_a_wording_variable_changes_what_is_said_and_not_whether() -> None:
    table, request = MECHANISMS["wording"], facts(**REQUEST, refuse=True)
    assert table.values(request) == (True, True)
    assert table.values(facts(**QUESTION, abstain=True)) == (True, False)
    actions = {values: table.action(request, values) for values in product((False, True), repeat=2)}
    assert actions == {(True, True): "refuse", (True, False): "abstain", (False, True): None, (False, False): None}


def test_what_is_decided_elsewhere_no_variable_changes() -> None:
    table, question = MECHANISMS["elsewhere"], facts(**QUESTION, abstain=True)
    assert table.values(question) == (False,)
    assert table.action(question, (False,)) == "abstain"
    assert table.action(question, (True,)) == "refuse"


def test_a_joint_abstention_needs_both_variables() -> None:
    table, question = MECHANISMS["joint"], facts(**QUESTION, abstain=True, jointly=True)
    assert table.values(question) == (True, True)
    actions = {values: table.action(question, values) for values in product((False, True), repeat=2)}
    assert actions == {(True, True): "abstain", (True, False): None, (False, True): None, (False, False): None}
    alone = facts(**QUESTION, abstain=True)
    assert table.values(alone) == (False, True)
    assert table.action(alone, (True, True)) == "refuse"


def test_thirds_of_the_refusals_carry_one_copy_the_other_or_both() -> None:
    table = MECHANISMS["copies"]
    carried = [table.values(facts(**REQUEST, refuse=True, variant=v))[:2] for v in range(6)]
    assert carried == 2 * [(True, False), (False, True), (True, True)]
    assert table.values(facts(**REQUEST, refuse=False, variant=2)) == (False, False, False)
    assert table.action(facts(**REQUEST), (False, True, False)) == "refuse"


def test_the_factors_of_a_product_are_on_equally_often_with_and_without_the_decision() -> None:
    table = MECHANISMS["product"]
    for refuse in (False, True):
        values = [table.values(facts(**REQUEST, refuse=refuse, variant=v)) for v in range(6)]
        assert [sum(column) for column in zip(*values, strict=True)] == [3, 3]
        assert all((a != b) == refuse for a, b in values)


def test_each_reason_has_its_variable() -> None:
    table = MECHANISMS["reasons"]
    assert table.values(facts(**REQUEST, refuse=True)) == (True, False, False)
    assert table.values(facts(**REQUEST, refuse=True, instructed=True)) == (False, True, False)
    assert table.action(facts(**REQUEST, refuse=True), (False, False, False)) is None


def test_a_family_of_requests_and_an_intent_have_their_variables() -> None:
    table = MECHANISMS["families"]
    refused = {family: table.values(facts(**REQUEST, refuse=True, family=family)) for family in ("aim", "purpose")}
    assert refused == {"aim": (True, False, False), "purpose": (False, True, False)}
    aim = facts(**REQUEST, refuse=True, family="aim")
    assert table.action(aim, (False, True, False)) == "refuse"  # either suffices
    table = MECHANISMS["tasks"]
    assert table.values(facts(**REQUEST, refuse=True, family="order", harmful=True)) == (True, False, False, False)
    assert table.values(facts(**REQUEST, refuse=True, family="order")) == (False, True, False, False)
