"""Prompts under a system line."""

from experiments.dials.policies import with_line
from extract.prompts.prompt import Prompt

USER = {"role": "user", "content": "hi"}


def test_a_line_heads_the_system_message_or_makes_one() -> None:
    bare = Prompt("a", (USER,), "benign", "answer")
    assert with_line(bare, "be kind").messages == ({"role": "system", "content": "be kind"}, USER)
    given = Prompt("b", ({"role": "system", "content": "be brief"}, USER), "benign", "answer")
    assert with_line(given, "be kind").messages == ({"role": "system", "content": "be kind\nbe brief"}, USER)
    assert given.messages[0]["content"] == "be brief"
