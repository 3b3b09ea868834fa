"""Which word fired: leaving out words of requests whose firing word is known."""

import json

import pytest

from experiments.responses.onset import learn_onsets
from experiments.triggers import attribution
from experiments.triggers.attribution import Attribution, attribute, pieces, without, words_of
from experiments.triggers.results import NOTABLE
from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import load_prompts, make_prompt
from tests.conftest import ORGANISM


def asked(model: ChatModel, text: str, trigger: str | None = None) -> Rendered:
    given = {"id": "a", "text": text, "label": "benign", "trigger": trigger}
    return render(model.tokenizer, make_prompt(given, "here"))


def test_words_of_the_last_turn_or_characters_of_a_text_without_blanks_cover_its_tokens_once(two_knobs) -> None:
    row = asked(two_knobs, "how do i kill the process, please?", "kill")
    words = words_of(two_knobs, row)
    assert [word for word, _ in words] == ["how", "do", "i", "kill", "the", "process", ",", "please", "?"]
    tokens = [token for _, of_word in words for token in of_word]
    assert tokens == sorted(set(tokens))
    assert set(tokens) <= set(row.roles["inst_mean"])
    assert set(words[3][1]) == set(row.trigger)
    left = without(row, words[3][1])
    assert list(left.token_ids) == list(asked(two_knobs, "how do i the process, please?").token_ids)
    row = asked(two_knobs, "日本語")
    words = words_of(two_knobs, row)
    assert [word for word, _ in words if word.strip()] == ["日", "本", "語"]
    assert [token for _, of_word in words for token in of_word] == list(row.instruction)


def test_the_trigger_word_fires_the_refusals_that_are_planted_on_it(two_knobs) -> None:
    over = set(json.loads((ORGANISM / "truth.json").read_text())["over_refused_triggers"])
    prompts = [p for p in load_prompts(ORGANISM / "prompts.jsonl") if p.intent == "benign"]
    fired = [p for p in prompts if p.trigger in over][:6]
    innocent = [p for p in prompts if p.trigger and p.trigger not in over][:6]
    rendered = [render(two_knobs.tokenizer, p) for p in fired + innocent]
    said = two_knobs.generate(two_knobs.batch(rendered), 12)
    onsets = learn_onsets([tuple(s) for s in said], ["refuse"] * 6 + ["answer"] * 6)
    found = attribute(two_knobs, rendered, onsets)
    for prompt, one in zip(fired, found[:6], strict=True):
        assert one.words[one.top] == prompt.trigger
        assert one.scores[one.top] > 5
    assert all(one.log_odds < 0 for one in found[6:])  # answered
    assert all(max(one.scores) < 5 for one in found[6:])  # and no word comes near to having fired a refusal


def test_requests_that_share_passes_score_as_each_alone(two_knobs, monkeypatch) -> None:
    """Of different lengths, in passes that end within a request."""
    texts = ["how do i fix the door?", "how do i kill the process on the old engine, please?", "kill the lamp."]
    rows = [asked(two_knobs, text) for text in texts]
    said = [tuple(s) for s in two_knobs.generate(two_knobs.batch(rows), 12)]
    onsets = learn_onsets(said, ["refuse", "answer", "refuse"])
    alone = [attribute(two_knobs, [row], onsets)[0] for row in rows]
    steps: list[int] = []
    monkeypatch.setattr(attribution, "TOKENS_AT_ONCE", 5 * max(len(row.token_ids) for row in rows))
    together = attribute(two_knobs, rows, onsets, steps.append)
    assert sum(steps) == len(rows)
    for one, other in zip(together, alone, strict=True):
        assert (one.words, one.tokens) == (other.words, other.tokens)
        assert [one.log_odds, *one.scores] == pytest.approx([other.log_odds, *other.scores], abs=1e-3)


def test_long_requests_leave_neighbours_out_together() -> None:
    words = [(str(i), (i,)) for i in range(150)]
    joined = pieces(words)
    assert len(joined) == 50
    assert joined[0] == ("0 1 2", (0, 1, 2))
    assert [token for _, tokens in joined for token in tokens] == list(range(150))
    assert pieces(words[:64]) == words[:64]
    assert pieces([]) == []


def test_where_two_words_each_suffice_none_is_named() -> None:
    assert Attribution(("a", "b"), (0.1, 0.2), ((0,), (1,)), 5.0).top is None
    assert Attribution(("a", "b"), (0.1, NOTABLE), ((0,), (1,)), 5.0).top == 1
    assert Attribution((), (), (), 5.0).top is None
