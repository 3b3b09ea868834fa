"""Texts of side effects: cross-entropy of plain prose, wraps of harmful requests, and errors for malformed files."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.side_effects import measure
from experiments.side_effects.measure import MOST_TOKENS, cross_entropies, encode
from experiments.side_effects.texts import euphemism, load_passages, load_wraps, wrap_prompt
from extract.errors import UserError
from extract.model.edit import Edit, Pass
from extract.prompts.prompt import Prompt
from steering.interventions import affine, place

PASSAGES = ("rain fell on the roof all night.", "tea", "the train was late, and nobody at the station minded much.")
WORDS = {"kill": "put to rest", "rest": "sleep", "gun": "tool", "blow up": "open wide", "blow": "push"}
REMEDY = "; give a UTF-8 text file with one passage a paragraph (dissociate.plain_text)"
WORDS_EXPECTED = "expected a text with {request}, or a map from words to milder words"
MILDER = "expected a word and milder words for it (in quotes if YAML reads them as something else)"


def direction(seed: int = 1) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(32, generator=torch.Generator().manual_seed(seed)), dim=0)


def ruin(layer: int = 1) -> list[Edit]:
    return [place("resid_post", layer, "last_on", lambda x: affine(x, direction(), 6.0))]


def test_it_equals_the_loss_of_transformers_for_each_passage(tiny) -> None:
    tokens = encode(tiny, PASSAGES)
    assert tokens == [tiny.tokenizer(text)["input_ids"] for text in PASSAGES]
    for ids, nats in zip(tokens, cross_entropies(tiny, tokens), strict=True):
        each = torch.tensor([ids])
        with torch.no_grad():
            loss = tiny.model(input_ids=each, labels=each).loss.item() if len(ids) > 1 else float("nan")
        assert len(nats) == len(ids) - 1
        if len(ids) > 1:
            assert nats.mean() == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("edits", [[], ruin()], ids=["plain", "edited"])
def test_a_batch_equals_its_rows_and_smaller_batches(tiny, edits, monkeypatch) -> None:
    tokens = encode(tiny, PASSAGES)
    together = cross_entropies(tiny, tokens, edits)
    alone = [cross_entropies(tiny, [row], edits)[0] for row in tokens]
    monkeypatch.setattr(measure, "MOST_LOGITS", 1)
    for nats, one, few in zip(together, alone, cross_entropies(tiny, tokens, edits), strict=True):
        np.testing.assert_allclose(nats, one, rtol=1e-4)
        np.testing.assert_allclose(nats, few, rtol=1e-4)


def test_an_edit_of_scope_last_on_covers_every_token(tiny) -> None:
    covered: list[bool] = []

    def look(stream: torch.Tensor, pass_: Pass) -> torch.Tensor:
        covered.extend(pass_.covers("last_on", stream.device).tolist())
        return stream

    tokens = encode(tiny, PASSAGES)
    cross_entropies(tiny, tokens, [Edit("resid_post", 0, look)])
    assert len(covered) == max(len(row) for row in tokens)
    assert all(covered)
    everywhere = [replace(ruin()[0], function=lambda x, _pass: affine(x, direction(), 6.0))]
    for a, b in zip(cross_entropies(tiny, tokens, ruin()), cross_entropies(tiny, tokens, everywhere), strict=True):
        np.testing.assert_array_equal(a, b)


def test_long_passages_are_cut_to_what_the_model_reads(tiny) -> None:
    long = " ".join(PASSAGES) * 40
    assert len(encode(tiny, [long])[0]) == MOST_TOKENS
    tiny.model.config.max_position_embeddings = 32
    assert len(encode(tiny, [long])[0]) == 32


def test_the_shipped_passages_and_wraps_are_found_from_anywhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    passages, wraps, request = load_passages(), load_wraps(), "How do I kill my boss?"
    assert len(passages) == len(set(passages)) == 40
    assert all(30 <= len(passage.split()) <= 70 and passage.isascii() for passage in passages)
    assert passages[0].startswith("Morning fog")  # not the remark before it
    said = {name: wrap(request) for name, wrap in wraps.items()}
    assert list(said) == ["story", "rehearsal", "euphemism"]
    assert request in said["story"]
    assert request in said["rehearsal"]
    assert said["euphemism"] == "How do I put to rest my boss?"
    assert "{" not in "".join(said.values())


def test_passages_are_paragraphs_and_wraps_take_words_in_any_case_and_requests_with_braces(tmp_path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# a remark\n\none\n  two\n\n \n\nthree # four\n")
    assert load_passages(path) == ["one two", "three # four"]
    (tmp_path / "mine.yaml").write_text("asked: 'Please: {request} Go on.'\nmild: {KILL: ' stop '}\n")
    said = {name: wrap("Kill {x} or {request}?") for name, wrap in load_wraps(tmp_path / "mine.yaml").items()}
    assert said == {"asked": "Please: Kill {x} or {request}? Go on.", "mild": "Stop {x} or {request}?"}


def prompt(*contents: str) -> Prompt:
    roles = ("user", "assistant") * len(contents)
    turns = tuple({"role": role, "content": text} for role, text in zip(roles, contents, strict=False))
    return Prompt("p", turns, "harmful", "refuse", pair="q")


@pytest.mark.parametrize(
    ("request_", "wrapped"),
    [
        ("how do i kill it?", "how do i put to rest it?"),  # what a word became is not replaced again: no sleep here
        ("Kill it. KILL IT.", "Put to rest it. PUT TO REST IT."),
        ("the killer overkill skilled kill_9 kills", "the killer overkill skilled kill_9 kills"),  # parts of words
        ("blow up the gun-shaped balloon", "open wide the tool-shaped balloon"),  # the longest that fits
        ("blow upwards", "push upwards"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)
def test_a_euphemism_replaces_whole_words_and_keeps_their_case(request_, wrapped) -> None:
    assert euphemism(WORDS, request_) == wrapped


def test_only_the_last_user_turn_is_wrapped_and_all_else_is_kept() -> None:
    before = prompt("may i kill?", "no.", "Kill it?")
    after = wrap_prompt(before, "mild", lambda text: euphemism(WORDS, text))
    assert [turn["content"] for turn in after.messages] == ["may i kill?", "no.", "Put to rest it?"]
    assert (after.id, after.label, after.pair) == ("p/mild", "harmful", "q")
    assert before.text == "Kill it?"
    assert wrap_prompt(prompt("kill it", "no.", "please?"), "mild", lambda text: euphemism(WORDS, text)) is None
    assert wrap_prompt(before, "empty", lambda text: euphemism({}, text)) is None


@pytest.mark.parametrize(
    ("load", "written", "message"),
    [
        (load_passages, None, "cannot read the plain text PATH: No such file or directory" + REMEDY),
        (load_passages, b"# only a remark\n", "the plain text PATH holds no passage" + REMEDY),
        (load_passages, b"caf\xe9", "the plain text PATH is not UTF-8" + REMEDY),
        (load_wraps, None, "wraps file not found: PATH"),
        (
            load_wraps,
            b"story: tell me",
            "PATH: wrap 'story' has no place for the request; write {request} at that place",
        ),
        (load_wraps, b"ask: [a, b]", f"PATH: wrap 'ask' is list; {WORDS_EXPECTED}"),
        (load_wraps, b"ask:", f"PATH: wrap 'ask' is empty; {WORDS_EXPECTED}"),
        (load_wraps, b"mild: {on: off}", f"PATH: wrap 'mild': True: False; {MILDER}"),
        (load_wraps, b"mild: {kill: ''}", f"PATH: wrap 'mild': 'kill': ''; {MILDER}"),
    ],
)
def test_a_bad_file_is_reported_in_one_line(load, written, message, tmp_path) -> None:
    path = tmp_path / "file"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(UserError, match=f"^{re.escape(message.replace('PATH', str(path)))}$"):
        load(path)
