"""Passes over the upper layers alone give what whole passes give, and leave the model as it was."""

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pytest
import torch

from experiments.responses import batched_edits
from experiments.responses.batched_edits import RepeatedPrompts, Trial
from extract.errors import UserError
from extract.model import continuation as module
from extract.model.backends import decoder_layers
from extract.model.continuation import cache_prompts, continued_logits, known_stream, upper_layers
from tests.extract.conftest import Build, Rows, pushed, quick_and_slow

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
    monkeypatch.setattr(module, "_HOLDS", WeakKeyDictionary())


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
def test_every_trial_gives_what_a_whole_pass_gives(
    tiny: Build, rows: Rows, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
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
    assert set(module._HOLDS[model].values()) == {True}
    assert not any("forward" in layer.__dict__ for layer in decoder_layers(model.model))


def test_the_lower_layers_are_not_run(tiny: Build, rows: Rows, running: list[int]) -> None:
    model = tiny("llama")
    asked = rows(model)
    prompts, suffix = RepeatedPrompts(model, asked), torch.full((len(asked), SUFFIX), 7)
    trials: list[Trial] = [[pushed(model, 1)], [pushed(model, 2, "resid_pre")]]
    logits_each(prompts, trials, suffix)  # after which the stream is known
    running.clear()
    logits_each(prompts, trials, suffix)
    assert running == [2]  # both in one pass of the only layer after them


def test_each_layer_is_checked_since_an_upper_one_may_take_more_than_the_stream(tiny: Build, rows: Rows) -> None:
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
        assert module._HOLDS[model] == {0: True, 1: False}
        cached = cache_prompts(model, model.batch(asked))
        for trial, logits in zip(trials, found, strict=True):
            with model.editing(trial):
                expected = continued_logits(model, cached, suffix)
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    finally:
        for handle in handles:
            handle.remove()


def test_open_edits_and_other_backends_run_whole_passes(tiny: Build, rows: Rows) -> None:
    model = tiny("llama")
    cached = cache_prompts(model, model.batch(rows(model)))
    suffix = torch.full((len(cached.batch.tokens), SUFFIX), 7)
    with model.editing([pushed(model, 0)]):
        assert known_stream(model, cached, suffix, 1) is None
    other = tiny("llama", backend="nnsight")
    assert known_stream(other, cached, suffix, 1) is None


def test_the_model_is_whole_again_after_an_error(tiny: Build, rows: Rows) -> None:
    model = tiny("llama")
    batch = model.batch(rows(model))
    cached, before = cache_prompts(model, batch), model.logits(batch)
    suffix = torch.full((len(batch.tokens), SUFFIX), 7)
    known = known_stream(model, cached, suffix, 1)
    assert known is not None
    with pytest.raises(UserError, match="stopped"), upper_layers(model, known):
        raise UserError("stopped")
    assert torch.equal(model.logits(batch), before)
