"""Streamed responses: the joined pieces equal the decoded text, and no piece has an incomplete character."""

import random
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from extract.chat.render import Rendered, render
from extract.model import streaming
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.model.streaming import StreamedText, stream
from tests.extract.conftest import ORGANISM, STORIES, Build, ask, hook_count
from tests.support.one_line import refused


@pytest.fixture(scope="module")
def model(tiny: Build) -> ChatModel:
    return tiny("llama")


@pytest.fixture(scope="module")
def row(model: ChatModel) -> Rendered:
    return render(model.tokenizer, ask("tell me."))


def test_pieces_are_what_is_generated(model: ChatModel, row: Rendered) -> None:
    batch = model.batch([row])
    pieces = list(stream(model, batch, 12))
    assert len(pieces) > 1
    assert "".join(pieces) == model.decode(model.generate(batch, 12)[0])


def test_each_step_is_watched_for_all_rows(model: ChatModel, row: Rendered) -> None:
    steps: list[list[int]] = []
    batch = model.batch([row, row])
    response = model.generate(batch, 6, 6, watch=steps.append)
    assert [list(column) for column in zip(*steps, strict=True)] == response
    drawn: list[list[int]] = []
    sampled = model.sample(batch, 6, [0, 1], watch=drawn.append)
    for i, one in enumerate(sampled):
        assert [tokens[i] for tokens in drawn][: len(one.token_ids)] == list(one.token_ids)


class Bytes:
    """A made-up tokenizer of bytes: token i is the byte i, and 0 ends."""

    eos_token_id = 0

    def __init__(self, tidies: bool) -> None:
        self.clean_up_tokenization_spaces = tidies
        self.added_tokens_decoder: dict[int, object] = {}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return bytes(i for i in ids if i).decode(errors="replace")


def byte_model(tidies: bool = False) -> ChatModel:
    made = ChatModel.__new__(ChatModel)
    made.tokenizer = Bytes(tidies)
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(eos_token_id=0))
    made.model = SimpleNamespace(generation_config=None, config=config)
    return made


@pytest.mark.parametrize("text", ["plain", "größer als 10 €", "日本語 です", "🙂🙃 fine", "  blanks at both ends  \n"])
@pytest.mark.parametrize("tidies", [False, True])
def test_no_half_character_is_given_and_nothing_is_lost(text: str, tidies: bool) -> None:
    pieces = StreamedText(byte_model(tidies))
    given = [pieces.push(token) for token in text.encode()]
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in given)
    assert "".join(given) + pieces.rest() == text.strip()
    assert pieces.rest() == ""
    if not tidies and len(text.encode()) > len(text):
        assert "" in given  # control: some bytes had to wait


TEXTS = [
    "größer als 10 €, 日本語 です! 🙂🙃 fine . . .\n\n  and   more",
    "plain words , and stops .",
    "\ufffd broken \ufffd",
]


@pytest.mark.parametrize("name", ["bytes", "tidy bytes", "organism", "stories"])
def test_a_long_response_decodes_only_its_tail_and_nothing_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a tokenizer that drops the blank before the first word, as sentencepiece does."""
    if name == "stories" and not STORIES.is_dir():
        pytest.skip("shared/data/stories260k is absent")
    of_file = {"organism": ORGANISM, "stories": STORIES}
    model = byte_model(tidies=name == "tidy bytes")
    if name in of_file:
        model.tokenizer = AutoTokenizer.from_pretrained(of_file[name])
    rng = random.Random(0)
    text = " ".join(rng.choice(TEXTS) for _ in range(60))
    tokens = list(text.encode()) if name not in of_file else model.tokenizer(text, add_special_tokens=False).input_ids
    expected, lengths = model.decode(tokens), list[int]()
    decode = ChatModel.decode_piece
    monkeypatch.setattr(ChatModel, "decode_piece", lambda self, ids: lengths.append(len(ids)) or decode(self, ids))
    pieces = StreamedText(model)
    given = "".join(pieces.push(token) for token in tokens)
    assert given + pieces.rest() == expected
    assert len(tokens) > 1000
    assert max(lengths) <= 2 * streaming.LONGEST
    assert max(lengths) < len(tokens) / 5


def test_what_really_is_no_character_is_given_at_the_end_and_after_it_nothing_is_taken() -> None:
    pieces = StreamedText(byte_model())
    assert [pieces.push(token) for token in (65, 0xF0)] == ["A", ""]
    assert pieces.rest() == "\N{REPLACEMENT CHARACTER}"
    pieces = StreamedText(byte_model())
    assert [pieces.push(token) for token in (72, 105, 0, 88, 89)] == ["H", "i", "", "", ""]
    assert pieces.ended
    assert pieces.token_ids == [72, 105]
    assert pieces.rest() == ""


def test_a_thought_that_the_prompt_opened_is_opened_in_the_pieces() -> None:
    pieces = StreamedText(byte_model(), Rendered("question<think>\n", [1], {}, False))
    assert pieces.push(72) == "<think>\nH"
    assert pieces.text == "<think>\nH"


def test_one_response_is_streamed_at_a_time(model: ChatModel, row: Rendered) -> None:
    refused("expected a batch of one prompt to stream, got 2 prompts", next, stream(model, model.batch([row, row]), 4))


def test_what_fails_while_decoding_is_raised_where_the_pieces_are_read(model: ChatModel, row: Rendered) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the device is gone")

    with model.editing([Edit("resid_post", 1, fail)]), pytest.raises(RuntimeError, match="the device is gone"):
        list(stream(model, model.batch([row]), 4))


def test_leaving_early_ends_the_decoding(model: ChatModel, row: Rendered) -> None:
    steps = 0

    def count(tensor: torch.Tensor, _: object) -> torch.Tensor:
        nonlocal steps
        steps += 1
        time.sleep(0.01)
        return tensor

    before = threading.active_count(), hook_count(model)
    with model.editing([Edit("resid_post", 1, count)]):
        pieces = stream(model, model.batch([row]), 200)
        next(iter(pieces))
        pieces.close()
    assert steps < 200
    assert (threading.active_count(), hook_count(model)) == before
