"""Positions of a thought: the tokens that they name, and their streams, on a model whose every word is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from extract.capture import Capturer
from extract.capture_spec import THOUGHT, CaptureSpec
from extract.chat.render import Rendered, render
from extract.chat.thinking import answer_start, thought_tokens
from extract.extraction import extract
from extract.model.chat_model import ChatModel
from extract.store.activation_store import ActivationStore
from extract.store.integrity import verify
from tests.extract.conftest import ask
from tests.support.one_line import refused
from tests.support.thinker import CHAIN, thinker

PROMPTS = [ask(text, id=text) for text in ("how do i move it?", "clean the house", "push")]


@pytest.mark.parametrize(
    ("pieces", "opened", "found", "start"),
    [
        (["<think>", "a", "b", "</think>", "c"], False, range(1, 3), 4),
        (["<think>", "\n", "a", "b", "\n\n", "</think>", "c"], False, range(2, 4), 6),
        (["a", "b", "</think>", "c"], True, range(0, 2), 3),
        (["<th", "ink", ">", "a", " b", "</", "think>", "c"], False, range(3, 5), 7),
        (["<think>", "a", "</think>", "b", "</think>", "c"], False, range(1, 4), 5),  # the last mark, as in its text
        (["<think>", "a", "b"], False, range(0), 0),  # cut off within the thought
        (["a", "b"], True, range(0), 0),
        (["a", "</think>", "b"], False, range(0), 0),
        (["<think>", "\n\n", "</think>", "c"], False, range(0), 3),  # thinking is turned off
        (["a", "b"], False, range(0), 0),
        ([], True, range(0), 0),
    ],
)
def test_which_tokens_are_the_thought_and_where_the_answer_begins(
    pieces: list[str], opened: bool, found: range, start: int
) -> None:
    assert thought_tokens(pieces, opened) == found
    assert answer_start(pieces, opened) == start


def stored(
    model: ChatModel, path: Path, said: list[list[int]] | None = None, rows_per_shard: int = 2, **wanted: int
) -> ActivationStore:
    rendered: list[Rendered] = [render(model.tokenizer, prompt) for prompt in PROMPTS]
    spec = CaptureSpec(positions=("inst_last",), rows_per_shard=rows_per_shard, **wanted)
    extract(model, PROMPTS, rendered, path, spec, said=said)
    assert verify(path).findings == ()
    return ActivationStore(path)


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("responses", [0, 3, 9])
def test_a_thought_is_captured_from_its_first_to_its_last_token(
    organism_tokenizer: PreTrainedTokenizerBase, tmp_path: Path, opens: bool, responses: int
) -> None:
    model = thinker(organism_tokenizer, opens)
    with stored(model, tmp_path / "a.h5", thought_tokens=9, response_tokens=responses) as store:
        said = [*(["<think>"] if opens else []), *CHAIN, "</think>", "open"]
        tenths = (0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3)  # of a thought of four words
        named = dict(zip(THOUGHT, [*(CHAIN[word] for word in tenths), "</think>", "open"], strict=True))
        named |= {f"response_{k + 1}": word for k, word in enumerate(said[:responses])}
        absent = [f"response_{k}" for k in range(len(said) + 1, responses + 1)]
        assert store.positions == ("inst_last", *named, *absent)
        for name, word in named.items():
            (expected,) = model.tokenizer.encode(word, add_special_tokens=False)
            for layer in (0, 1):
                np.testing.assert_allclose(store.read(layer, name), np.eye(model.d_model)[[expected] * 3], atol=1e-6)
        for name in absent:
            assert not store.present[store.positions.index(name)].any()


def test_a_thought_that_is_not_closed_in_time_has_no_positions(
    organism_tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = thinker(organism_tokenizer, opens=True)
    with stored(model, tmp_path / "a.h5", thought_tokens=5) as store:
        assert not store.present[1:].any()
        assert store.present[0].all()
        assert np.isnan(store.read(1, "think_last")).all()
    refused("was made with another tokens", stored, model, tmp_path / "a.h5", thought_tokens=6)
    with stored(model, tmp_path / "b.h5", thought_tokens=6) as store:
        assert store.present[1:-2].all()
        assert not store.present[-1].any()  # the answer has not begun


def test_thoughts_of_responses_that_are_there_are_read_and_not_written_again(
    organism_tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = thinker(organism_tokenizer, opens=True)
    batch = model.batch([render(model.tokenizer, prompt) for prompt in PROMPTS])
    said = [model.generate(batch, length)[row] for row, length in enumerate((20, 9, 3))]  # whole, cut, too short
    with stored(model, tmp_path / "a.h5", thought_tokens=9) as store:
        monkeypatch.setattr(Capturer, "_generated", None)
        with stored(model, tmp_path / "b.h5", said, thought_tokens=9) as other:
            assert (other.present[:, :2] == store.present[:, :2]).all()
            assert not other.present[1:, 2].any()
            for name in store.positions:
                np.testing.assert_array_equal(other.read(1, name)[:2], store.read(1, name)[:2])
    with stored(model, tmp_path / "c.h5", said, thought_tokens=5) as short:  # they end later than that
        assert not short.present[1:].any()
