"""Responses decoded from cached prompts are those of `ChatModel.generate`, under edits and processors too."""

import pytest
import torch
from transformers import LogitsProcessor

from extract.chat.render import Rendered
from extract.model import continuation as cached_decoding
from extract.model.chat_model import ChatModel
from extract.model.continuation import cache_prompts, decode_cached, try_cache_prompts
from extract.model.decoding import cut_at_end
from tests.extract.conftest import Build, Rows, pushed, quick_and_slow

ARCHITECTURES = quick_and_slow("llama gpt2 gemma3_text", "mistral gemma2 qwen3 gpt_neox")


class Lowered(LogitsProcessor):
    """Makes the tokens that a row holds already unlikely, so that what it says depends on the whole row."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.scatter_add(1, input_ids, torch.full_like(input_ids, -3, dtype=scores.dtype))


def said(model: ChatModel, rows: list[Rendered], n: int, processors: list[LogitsProcessor]) -> list[list[int]]:
    """Return what the model says from cached prompts, having checked that it leaves the cache as it was."""
    cached = cache_prompts(model, model.batch(rows))
    before = [layer.keys.clone() for layer in cached.cache.layers]
    with model.editing([pushed(model)], processors):
        responses = decode_cached(model, cached, n)
    assert all(torch.equal(layer.keys, old) for layer, old in zip(cached.cache.layers, before, strict=True))
    return responses


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_says_what_generate_says(tiny: Build, rows: Rows, name: str) -> None:
    model = tiny(name)
    asked = rows(model)
    with model.editing([pushed(model)], [Lowered()]):
        expected = model.generate(model.batch(asked), 8)
    found = [cut_at_end(response, model.eos_ids) for response in said(model, asked, 8, [Lowered()])]
    assert found == expected
    assert found != [
        cut_at_end(r, model.eos_ids) for r in decode_cached(model, cache_prompts(model, model.batch(asked)), 8)
    ]


def test_rows_that_end_leave_the_batch_and_change_no_other(
    tiny: Build, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    asked, sizes = rows(model), list[int]()
    endless = decode_cached(model, cache_prompts(model, model.batch(asked)), 8)
    early = endless[0][2]  # made an end: the first row says it at its third step, others later or never
    expected = [response[: response.index(early) + 1] if early in response else response for response in endless]
    monkeypatch.setattr(ChatModel, "eos_ids", [early])
    scores = cached_decoding._next_scores
    monkeypatch.setattr(
        cached_decoding, "_next_scores", lambda m, left: sizes.append(len(left.batch.tokens)) or scores(m, left)
    )
    assert decode_cached(model, cache_prompts(model, model.batch(asked)), 8) == expected
    assert sizes[0] == len(asked) > sizes[-1]
    assert sum(sizes) < 8 * len(asked)
    assert sum(sizes) >= sum(map(len, expected))


def test_a_choice_of_tokens_is_told_which_rows_are_left(
    tiny: Build, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row i ends after i + 1 tokens by the choice alone."""
    model = tiny("llama")
    monkeypatch.setattr(ChatModel, "eos_ids", [7])
    asked, step = rows(model), iter(range(100))

    def choose(scores: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
        now = next(step)
        assert len(scores) == len(left)
        return torch.where(left == now, 7, 9)

    found = decode_cached(model, cache_prompts(model, model.batch(asked)), 100, choose)
    assert found == [[9] * row + [7] for row in range(len(asked))]


def test_a_model_that_cannot_go_on_is_asked_once(tiny: Build, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tried = tiny("llama"), list[int]()
    monkeypatch.setattr("extract.model.continuation._CHECKED", {})
    monkeypatch.setattr("extract.model.continuation._continuation_holds", lambda *_: bool(tried.append(1)))
    assert try_cache_prompts(model, model.batch(rows(model))) is None
    assert try_cache_prompts(model, model.batch(rows(model))) is None
    assert len(tried) == 1
