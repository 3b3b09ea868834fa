"""Prompts of a contrast between two named ways of declining."""

from __future__ import annotations

import pytest

from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.prompts.sources import contrasted, contrasted_action


def prompt(label: str, decline: str | None = None) -> Prompt:
    words = ({"role": "user", "content": "how?"},)
    return Prompt(f"{label}/{decline}", words, label, "answer", acceptable=("clarify",), decline=decline)


def test_the_two_ways_take_the_labels_of_the_two_refusals_and_other_declines_are_fitted_to_nothing() -> None:
    prompts = [prompt("harmful", "policy"), prompt("benign", "instructed"), prompt("benign"), prompt("uncertain"),
               prompt("harmful", "legal"), prompt("harmful")]  # fmt: skip
    found = contrasted(prompts, ("policy", "instructed"), "file")
    assert [p.label for p in found] == ["harmful", "uncertain", "benign", "dual_use", "dual_use", "dual_use"]
    assert [(p.right_action, p.acceptable) for p in found[:2]] == [("refuse", ()), ("abstain", ())]
    assert found[2] is prompts[2]
    swapped = contrasted(prompts, ("instructed", "policy"), "file")
    assert [p.label for p in swapped[:2]] == ["uncertain", "harmful"]


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (("policy", "law"), "no prompt has the field 'decline' with the value 'law'; the ways are instructed, policy"),
        (("policy", "policy"), "a contrast needs two different ways of declining, got 'policy' twice"),
    ],
)
def test_ways_that_no_contrast_can_be_made_of_are_a_users_error(ways: tuple[str, str], message: str) -> None:
    prompts = [prompt("harmful", "policy"), prompt("benign", "instructed")]
    with pytest.raises(UserError) as error:
        contrasted(prompts, ways, "file")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("label", "action", "read"),
    [
        ("harmful", "abstain", "refuse"), ("harmful", "refuse", "refuse"), ("uncertain", "refuse", "abstain"),
        ("uncertain", "answer", "answer"), ("benign", "refuse", "refuse"), ("benign", "abstain", "abstain"),
        ("uncertain", None, None), ("uncertain", "clarify", "clarify"),
    ],
)  # fmt: skip
def test_a_decline_is_that_of_its_prompt_however_it_is_worded(label: str, action: str | None, read: str | None) -> None:
    assert contrasted_action(action, prompt(label)) == read
