"""Continued prompts: as each row alone, decoded as `generate` does, and by the upper layers alone."""

from collections.abc import Iterator
from typing import get_args
from weakref import WeakKeyDictionary

import pytest
import torch
from transformers import LogitsProcessor
from transformers.cache_utils import DynamicLayer

from experiments.responses import batched_edits
from experiments.responses.batched_edits import RepeatedPrompts, Trial
from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model import continuation
from extract.model.backends import decoder_layers
from extract.model.chat_model import ChatModel
from extract.model.continuation import cache_prompts, continued_logits, decode_cached, known_stream
from extract.model.decoding import cut_at_end
from extract.model.edit import Edit
from tests.extract.conftest import Build, Scaled, pushed, quick_and_slow, rows
from tests.support.one_line import refused


def test_a_model_that_padding_changes_is_refused_by_name(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    monkeypatch.setattr(continuation, "_WAYS", WeakKeyDictionary({model: "from the start"}))
    monkeypatch.setattr(continuation, "_CHECKED", WeakKeyDictionary())

    def shifted(_module: object, args: object, kwargs: dict[str, torch.Tensor]) -> tuple[object, object]:
        ids = kwargs["input_ids"]
        return args, kwargs | {"input_ids": (ids + ids.shape[1]) % 500}

    handle = model.model.register_forward_pre_hook(shifted, with_kwargs=True)  # what a token is depends on the padding
    try:
        refused("^llama: LlamaForCausalLM answers a padded prompt", cache_prompts, model, model.batch(rows(model)))
    finally:
        handle.remove()


@pytest.mark.parametrize("lengths", [[7], [7, 7], [5, 8, 7, 6], [7] * 5, [4, 9, 5, 6, 7, 8]])
def test_a_tensor_that_stays_where_it_was_is_noticed(
    scaled: Scaled, monkeypatch: pytest.MonkeyPatch, lengths: list[int]
) -> None:
    """Also in a batch of equal rows, whose order cannot be seen, and at a scale at which the output hardly changes."""
    model = scaled("llama", 0.1)
    batch = model.pad([list(range(5, 5 + n)) for n in lengths], "left")
    assert cache_prompts(model, batch).cache is not None

    def only_keys(layer: DynamicLayer, rows: torch.Tensor) -> None:
        layer.keys = layer.keys[rows]
        layer.values = layer.values[torch.arange(len(rows)) % len(layer.values)]

    for moving in (only_keys, lambda *_: None)[len(set(lengths)) == 1 :]:
        monkeypatch.setattr(continuation, "_CHECKED", WeakKeyDictionary())
        monkeypatch.setattr(continuation, "_WAYS", WeakKeyDictionary())
        monkeypatch.setattr(DynamicLayer, "batch_select_indices", moving)
        assert cache_prompts(model, batch).cache is None  # every pass reads the prompts from the start
        assert continuation.try_cache_prompts(model, batch) is None


def test_memory_that_runs_out_during_the_check_is_not_a_model_that_cannot_go_on(
    scaled: Scaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model = scaled("llama", 1)
    monkeypatch.setattr(continuation, "continued_log_probs", full)
    with pytest.raises(torch.OutOfMemoryError):
        continuation.try_cache_prompts(model, model.pad([[5] * 9], "left"))


def test_the_last_streams_are_those_captured_edits_first(tiny: Build) -> None:
    model = tiny("llama")
    batch = model.batch(rows(model))
    shift = Edit("resid_post", 1, lambda stream, _: stream + 1.0)
    found = continuation.last_streams(model, cache_prompts(model, batch), "resid_post", [1, 2], [shift])
    plain = continuation.last_streams(model, cache_prompts(model, batch), "resid_post", [1, 2])
    captured: dict[int, torch.Tensor] = {}
    model.capture(batch, "resid_post", [1, 2], lambda layer, stream: captured.update({layer: stream[:, -1].clone()}))
    torch.testing.assert_close(plain, torch.stack([captured[1], captured[2]]), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[0], plain[0] + 1.0, atol=1e-4, rtol=1e-4)
    assert (found[1] - plain[1]).abs().max() > 0.1


def test_that_a_model_goes_on_is_checked_once_and_again_for_longer_or_padded_prompts(
    tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, checked = tiny("llama"), list[tuple[int, ...]]()

    def counted(of: ChatModel, cached: continuation.CachedPrompts, way: continuation.Way) -> bool:
        checked.append(tuple(cached.batch.tokens.shape))
        return holds(of, cached, way)

    holds = continuation._continuation_holds
    monkeypatch.setattr(continuation, "_continuation_holds", counted)
    monkeypatch.setattr(continuation, "_CHECKED", {})
    for lengths in ([7, 7], [7], [5, 5], [8], [5, 8], [4, 7], [8, 8]):
        cache_prompts(model, model.pad([[5] * n for n in lengths], "left"))
    assert checked == [(2, 7), (1, 8), (2, 8)]
    monkeypatch.setattr(continuation, "_continuation_holds", lambda *_: False)
    for _ in range(2):  # a failure is not remembered as checked
        refused("cannot continue from what it has read", cache_prompts, model, model.pad([[5] * 9], "left"))


DECODED = quick_and_slow("llama gpt2 gemma3_text", "mistral gemma2 qwen3 gpt_neox")


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


@pytest.mark.parametrize("name", DECODED)
def test_it_says_what_generate_says(tiny: Build, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "ROOM", 3)  # so that the cache grows twice
    model = tiny(name)
    asked = rows(model)
    with model.editing([pushed(model)], [Lowered()]):
        expected = model.generate(model.batch(asked), 8)
    found = [cut_at_end(response, model.eos_ids) for response in said(model, asked, 8, [Lowered()])]
    assert found == expected
    plain = decode_cached(model, cache_prompts(model, model.batch(asked)), 8)
    assert found != [cut_at_end(response, model.eos_ids) for response in plain]


def test_rows_that_end_leave_the_batch_and_change_no_other(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    asked, sizes = rows(model), list[int]()
    endless = decode_cached(model, cache_prompts(model, model.batch(asked)), 8)
    early = endless[0][2]  # made an end: the first row says it at its third step, others later or never
    expected = [response[: response.index(early) + 1] if early in response else response for response in endless]
    monkeypatch.setattr(ChatModel, "eos_ids", [early])
    scores = continuation._next_scores
    monkeypatch.setattr(
        continuation, "_next_scores", lambda m, left: sizes.append(len(left.batch.tokens)) or scores(m, left)
    )
    assert decode_cached(model, cache_prompts(model, model.batch(asked)), 8) == expected
    assert sizes[0] == len(asked) > sizes[-1]
    assert sum(sizes) < 8 * len(asked)
    assert sum(sizes) >= sum(map(len, expected))


def test_a_choice_of_tokens_is_told_which_rows_are_left(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_model_that_cannot_go_on_is_asked_once(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tried = tiny("llama"), list[int]()
    monkeypatch.setattr("extract.model.continuation._CHECKED", {})
    monkeypatch.setattr("extract.model.continuation._continuation_holds", lambda *_: bool(tried.append(1)))
    monkeypatch.setattr("extract.model.continuation._WAYS", WeakKeyDictionary())
    assert continuation.try_cache_prompts(model, model.batch(rows(model))) is None
    assert continuation.try_cache_prompts(model, model.batch(rows(model))) is None
    assert len(tried) == len(get_args(continuation.Way))


ARCHITECTURES = quick_and_slow("llama gpt2 gemma3_text", "mistral mixtral gemma2 qwen3 gpt_neox granite phi3")
SUFFIX = 3


def logits_each(prompts: RepeatedPrompts, trials: list[Trial], suffix: torch.Tensor) -> torch.Tensor:
    """Return the logits under each trial, (trials, rows, tokens, vocabulary)."""
    found = {}
    for batch in prompts.passes(trials, SUFFIX + 1):
        found.update(zip(batch.trials, batch.split(prompts.logits(batch, suffix)), strict=True))
    return torch.stack([found[i] for i in range(len(trials))])


@pytest.fixture(autouse=True)
def nothing_checked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "_HOLDS", WeakKeyDictionary())


@pytest.fixture
def running(tiny: Build) -> Iterator[list[int]]:
    """The layers whose attention runs, of the model `llama`."""
    ran: list[int] = []
    layers = decoder_layers(tiny("llama").model)
    handles = [layer.self_attn.register_forward_hook(lambda *_, i=i: ran.append(i)) for i, layer in enumerate(layers)]
    yield ran
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_trial_gives_what_a_whole_pass_gives(tiny: Build, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Also trials of several layers in one pass, whose lowest layer counts."""
    model = tiny(name)
    asked = rows(model)
    monkeypatch.setattr(batched_edits, "MOST_ROWS", 2 * len(asked))
    cached, prompts = cache_prompts(model, model.batch(asked)), RepeatedPrompts(model, asked)
    suffix = torch.arange(5, 5 + SUFFIX * len(asked)).reshape(len(asked), SUFFIX)
    trials: list[Trial] = [[pushed(model, k)] for k in (2, 0, 1)]
    trials += [[pushed(model, 1, "resid_pre")], [], [pushed(model, 2), pushed(model, 1)]]
    trials += [[pushed(model, 0, "resid_pre")]]
    expected = []
    for trial in trials:
        with model.editing(trial):
            expected.append(continued_logits(model, cached, suffix))
    found = logits_each(prompts, trials, suffix)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(prompts.plain_logits(suffix), expected[4], atol=1e-5, rtol=1e-5)
    assert (expected[0] - expected[4]).abs().max() > 1e-2
    assert set(continuation._HOLDS[model].values()) == {True}
    assert not any("forward" in layer.__dict__ for layer in decoder_layers(model.model))


def test_the_lower_layers_are_not_run(tiny: Build, running: list[int]) -> None:
    model = tiny("llama")
    asked = rows(model)
    prompts, suffix = RepeatedPrompts(model, asked), torch.full((len(asked), SUFFIX), 7)
    trials: list[Trial] = [[pushed(model, 1)], [pushed(model, 2, "resid_pre")]]
    logits_each(prompts, trials, suffix)  # after which the stream is known
    running.clear()
    logits_each(prompts, trials, suffix)
    assert running == [2]  # both in one pass of the only layer after them


def test_each_layer_is_checked_since_an_upper_one_may_take_more_than_the_stream(tiny: Build) -> None:
    """As where upper layers use the keys of a lower one: here layer 2 adds what the attention of layer 1 gave."""
    model = tiny("llama")
    asked, kept = rows(model), {}
    layers = decoder_layers(model.model)
    handles = [
        model.model.register_forward_pre_hook(lambda *_: kept.clear()),
        layers[1].self_attn.register_forward_hook(lambda _module, _args, out: kept.update(given=out[0])),
        layers[2].mlp.register_forward_hook(lambda _module, _args, out: out + kept.get("given", 0.0)),
    ]
    try:
        prompts, suffix = RepeatedPrompts(model, asked), torch.full((len(asked), SUFFIX), 7)
        trials: list[Trial] = [[pushed(model, 0)], [pushed(model, 1)]]
        found = [logits_each(prompts, [trial], suffix)[0] for trial in trials]
        assert continuation._HOLDS[model] == {0: True, 1: False}
        cached = cache_prompts(model, model.batch(asked))
        for trial, logits in zip(trials, found, strict=True):
            with model.editing(trial):
                expected = continued_logits(model, cached, suffix)
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    finally:
        for handle in handles:
            handle.remove()


def test_open_edits_and_other_backends_run_whole_passes(tiny: Build) -> None:
    model = tiny("llama")
    cached = cache_prompts(model, model.batch(rows(model)))
    suffix = torch.full((len(cached.batch.tokens), SUFFIX), 7)
    with model.editing([pushed(model, 0)]):
        assert known_stream(model, cached, suffix, 1) is None
    other = tiny("llama", backend="nnsight")
    assert known_stream(other, cached, suffix, 1) is None


def test_the_model_is_whole_again_after_an_error(tiny: Build) -> None:
    model = tiny("llama")
    batch = model.batch(rows(model))
    cached, before = cache_prompts(model, batch), model.logits(batch)
    suffix = torch.full((len(batch.tokens), SUFFIX), 7)
    known = known_stream(model, cached, suffix, 1)
    assert known is not None
    with pytest.raises(UserError, match="stopped"), continuation.upper_layers(model, known):
        raise UserError("stopped")
    assert torch.equal(model.logits(batch), before)


@pytest.mark.parametrize("shape", [(3, 5, 11), (9, 11), (1, 11)])
def test_log_probs_of_some_tokens_are_those_of_the_whole_distribution(shape: tuple[int, ...]) -> None:
    logits = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 30).to(torch.bfloat16)
    found = continuation.log_probs_of(logits, (4, 0))
    assert torch.equal(found, logits.float().log_softmax(-1)[..., [4, 0]])
