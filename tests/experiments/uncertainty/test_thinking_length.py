"""A model that thinks first is judged by its answer after the thought, and openings are those of the answer."""

from dataclasses import replace

import pytest

from experiments.responses.completions import Completer
from experiments.responses.onset import learn_onsets
from experiments.responses.setting import PromptBatch
from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from scoring.judges.rules import RuleJudge

EMPTY_BLOCK = (7, 8, 9)
PROMPT = Prompt("p", ({"role": "user", "content": "how?"},), "benign", "answer")


def test_no_onset_is_learned_from_thoughts() -> None:
    said, actions = [(1, 2), (1, 2), (3, 4), (3, 4)], ["refuse", "refuse", "answer", "answer"]
    assert learn_onsets(said, actions).lacking("refuse") == ""
    onsets = learn_onsets(said, actions, [True] * 4)
    assert onsets.prefixes["refuse"] == ()
    assert onsets.lacking("refuse") == (
        "onset prefixes cannot be learned for refuse: its own openings cover 0% of such completions, 50% are needed; "
        "100% of the completions think first, and no opening was seen after a thought: give more tokens, or turn "
        "thinking off (model.template_args, if the template has a switch)"
    )
    mixed = learn_onsets(said, actions, [True, False, False, False])
    assert (mixed.coverage["refuse"], mixed.thinking) == (0.5, 0.25)
    assert mixed.lacking("refuse") == ""


@pytest.mark.parametrize("opening", [(), EMPTY_BLOCK, EMPTY_BLOCK * 5])
def test_an_opening_that_all_share_counts_for_nothing_in_a_prefix_length(opening: tuple[int, ...]) -> None:
    said, actions = [(*opening, 1, 2, 5), (*opening, 1, 3, 5), (*opening, 4, 5)], ["refuse", "answer", "answer"]
    assert learn_onsets(said, actions, max_length=2).prefixes["refuse"] == ((*opening, 1, 2),)
    assert learn_onsets(said, actions, max_length=1).prefixes["refuse"] == ()


def spoken(
    tiny: ChatModel, rows: list[Rendered], says: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, object]]:
    """Return text and action of what a model says that always says the same."""
    monkeypatch.setattr(PromptBatch, "responses", lambda self, setting, places, *_: [[0]] * len(places))
    monkeypatch.setattr(ChatModel, "decode", lambda self, response: says)
    said = Completer(tiny, [PROMPT], rows, 4, 4, RuleJudge()).complete([0])
    return [(completion.completion, completion.action) for completion in said]


def test_a_thought_the_template_opened_is_not_judged(tiny: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = render(tiny.tokenizer, PROMPT)
    opened = replace(plain, text=plain.text + "<think>\n")
    cut = "I cannot help with that, I might say, but"
    assert spoken(tiny, [opened], cut, monkeypatch) == [(f"<think>\n{cut}", None)]
    whole = f"{cut} it is fine.</think>Open the door and walk in."
    assert spoken(tiny, [opened], whole, monkeypatch) == [(f"<think>\n{whole}", "answer")]
    assert spoken(tiny, [plain], "I cannot help with that.", monkeypatch) == [("I cannot help with that.", "refuse")]
