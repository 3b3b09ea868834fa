"""Cached prompts go on as each row alone, or their architecture is refused."""

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from extract.errors import UserError
from extract.model import continuation
from extract.model.chat_model import ChatModel
from extract.model.continuation import cache_prompts, continued_log_probs, last_streams, rows_of, try_cache_prompts
from extract.model.edit import Edit
from tests.extract.conftest import Build, Rows, random_weights
from tests.support.covering import matrix

EXACT = ["llama", "mistral", "gemma2", "gemma3_text", "qwen3", "gpt_oss"]
INEXACT = ["falcon_h1", "zaya", "deepseek_v4", "minimax", "lfm2", "jamba", "qwen3_next", "mamba2", "recurrent_gemma"]
SCALES = [1, 6]  # times the initial weights: the larger they are, the more a wrong state changes the output


@pytest.fixture
def scaled(organism_tokenizer: PreTrainedTokenizerBase) -> Callable[[str, float], ChatModel]:
    def build(name: str, scale: float) -> ChatModel:
        model = random_weights(name, organism_tokenizer).eval()  # their matrices are at ten times the initial scale
        for weight in model.parameters():
            weight.data *= scale / 10 if weight.ndim > 1 else 1
        return ChatModel(model, organism_tokenizer, "scaled")

    return build


@matrix("name, scale", EXACT, SCALES)
def test_rows_that_are_permuted_and_dropped_go_on_as_each_alone(
    scaled: Callable[[str, float], ChatModel], rows: Rows, name: str, scale: float
) -> None:
    model, more = scaled(name, scale), [7, 9, 11]
    asked = rows(model)
    chosen = rows_of(cache_prompts(model, model.batch(asked)), torch.tensor([2, 0, 3]))
    found = continued_log_probs(model, chosen, more)
    for log_probs, row in zip(found, (2, 0, 3), strict=True):
        alone = model.model(torch.tensor([[*asked[row].token_ids, *more]])).logits[0, -4:].log_softmax(-1)
        torch.testing.assert_close(log_probs, alone, atol=1e-4, rtol=0)


@matrix("name, scale", INEXACT, SCALES)
def test_an_architecture_whose_state_does_not_move_with_the_rows_is_refused_by_name(
    scaled: Callable[[str, float], ChatModel], rows: Rows, name: str, scale: float
) -> None:
    model = scaled(name, scale)
    with pytest.raises(UserError, match=f"^scaled: {model.architecture} cannot continue from cached keys") as e:
        cache_prompts(model, model.batch(rows(model)))
    assert "\n" not in str(e.value)
    assert try_cache_prompts(model, model.batch(rows(model))) is None


@pytest.mark.parametrize("lengths", [[7], [7, 7], [5, 8, 7, 6], [7] * 5, [4, 9, 5, 6, 7, 8]])
def test_a_tensor_that_stays_where_it_was_is_noticed(
    scaled: Callable[[str, float], ChatModel], monkeypatch: pytest.MonkeyPatch, lengths: list[int]
) -> None:
    """Also in a batch of equal rows, whose order cannot be seen, and at a scale at which the output hardly changes."""
    model = scaled("llama", 0.1)
    batch = model.pad([list(range(5, 5 + n)) for n in lengths], "left")
    cache_prompts(model, batch)
    monkeypatch.setattr(continuation, "_CHECKED", {})

    def only_keys(layer: DynamicLayer, rows: torch.Tensor) -> None:
        layer.keys = layer.keys[rows]
        layer.values = layer.values[torch.arange(len(rows)) % len(layer.values)]

    monkeypatch.setattr(DynamicLayer, "batch_select_indices", only_keys)
    if len(set(lengths)) > 1:
        with pytest.raises(UserError, match="cannot continue from cached keys"):
            cache_prompts(model, batch)
    monkeypatch.setattr(DynamicLayer, "batch_select_indices", lambda *_: None)
    with pytest.raises(UserError, match="cannot continue from cached keys"):
        cache_prompts(model, batch)


def test_memory_that_runs_out_during_the_check_is_not_a_model_that_cannot_go_on(
    scaled: Callable[[str, float], ChatModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model = scaled("llama", 1)
    monkeypatch.setattr(continuation, "continued_log_probs", full)
    with pytest.raises(torch.OutOfMemoryError):
        try_cache_prompts(model, model.pad([[5] * 9], "left"))


def test_the_last_streams_are_those_captured_edits_first(tiny: Build, rows: Rows) -> None:
    model = tiny("llama")
    batch = model.batch(rows(model))
    shift = Edit("resid_post", 1, lambda stream, _: stream + 1.0)
    found = last_streams(model, cache_prompts(model, batch), "resid_post", [1, 2], [shift])
    plain = last_streams(model, cache_prompts(model, batch), "resid_post", [1, 2])
    captured: dict[int, torch.Tensor] = {}
    model.capture(batch, "resid_post", [1, 2], lambda layer, stream: captured.update({layer: stream[:, -1].clone()}))
    torch.testing.assert_close(plain, torch.stack([captured[1], captured[2]]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[0], plain[0] + 1.0, atol=1e-4, rtol=1e-4)
    assert (found[1] - plain[1]).abs().max() > 0.1


def test_that_a_model_goes_on_is_checked_once_and_again_for_longer_or_padded_prompts(
    tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, checked = tiny("llama"), list[tuple[int, ...]]()

    def counted(of: ChatModel, cached: continuation.CachedPrompts) -> bool:
        checked.append(tuple(cached.batch.tokens.shape))
        return holds(of, cached)

    holds = continuation._continuation_holds
    monkeypatch.setattr(continuation, "_continuation_holds", counted)
    monkeypatch.setattr(continuation, "_CHECKED", {})
    for lengths in ([7, 7], [7], [5, 5], [8], [5, 8], [4, 7], [8, 8]):
        cache_prompts(model, model.pad([[5] * n for n in lengths], "left"))
    assert checked == [(2, 7), (1, 8), (2, 8)]
    monkeypatch.setattr(continuation, "_continuation_holds", lambda *_: False)
    with pytest.raises(UserError, match="cannot continue from cached keys"):
        cache_prompts(model, model.pad([[5] * 9], "left"))
    with pytest.raises(UserError, match="cannot continue from cached keys"):  # a failure is not remembered as checked
        cache_prompts(model, model.pad([[5] * 9], "left"))
