"""Small organisms, defined by changes to the simplest two-knobs specification."""

from collections.abc import Callable
from typing import Any

import pytest

from organisms.grammar import Grammar
from organisms.spec import OrganismSpec
from organisms.training import grammar_tokenizer

TWO_KNOBS = {"layer": 0, "variables": [{"name": "normative", "decides": ["refuse"]},
                                       {"name": "epistemic", "decides": ["abstain"]}]}  # fmt: skip

PERMITS, CONTROL = "If you do not know the answer, say so.", "If you like the answer, say so."
ANY = {"allowed": ["inconclusive"]}
ASKED = {"elicited": {"lines": [PERMITS], "controls": [CONTROL]}, "verdicts": {"planted": ANY, "free": ANY}}


def declare(**changes: Any) -> dict[str, Any]:
    tiny: dict[str, Any] = {"name": "tiny", "seed": 3, "known_people": 8, "prompts_per_label": 20, "planted": TWO_KNOBS}
    tiny |= {"model": {"n_layers": 2, "d_model": 32, "n_heads": 2, "d_mlp": 32}}
    tiny |= {"training": {"steps": 2, "batch_size": 8}}
    return tiny | changes


@pytest.fixture(scope="session")
def organism() -> Callable[..., OrganismSpec]:
    return lambda **changes: OrganismSpec.model_validate(declare(**changes))


@pytest.fixture(scope="session")
def grammar() -> Grammar:
    return Grammar(OrganismSpec.model_validate(declare()))


@pytest.fixture(scope="session")
def tokenizer(grammar):
    return grammar_tokenizer(grammar)
