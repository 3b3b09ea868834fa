"""Kept prompts: taken from any pass, they go on as prompts that were just read, and none is run twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import Capturer, ResolvedSpec, resolved, shared_prefixes
from extract.capture_spec import EVERYTHING
from extract.chat.render import Rendered, render
from extract.model import kept_prompts
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, cache_prompts, continued_logits, decode_cached
from extract.model.kept_prompts import KeptPrompts
from extract.store.shards import CapturedShard
from tests.extract.conftest import TEXTS, Build, ask, pushed, quick_and_slow, rows

GOES_ON = quick_and_slow("llama gpt2 gemma3_text organism", "qwen2 gemma2 mistral phi3 gpt_neox gpt_oss stories260k")


def kept_of(model: ChatModel, asked: list[Rendered], most: int = 1 << 30) -> KeptPrompts:
    return KeptPrompts(model, [row.token_ids for row in asked], most)


def capture(model: ChatModel, asked: list[Rendered], spec: ResolvedSpec, kept: KeptPrompts | None) -> CapturedShard:
    with BackgroundThread() as background:
        prefixes = shared_prefixes(model, asked, spec)
        return Capturer(model, spec, TokenBudget(40), background, prefixes, kept=kept).capture(asked)


@contextmanager
def counting(model: ChatModel) -> Iterator[list[int]]:
    """Count the tokens of each pass, padding included."""
    seen: list[int] = []
    handle = model.decoder.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    try:
        yield seen
    finally:
        handle.remove()


def goes_on(model: ChatModel, cached: CachedPrompts) -> tuple[torch.Tensor, list[list[int]]]:
    suffix = torch.tensor([[7, 9]]).expand(len(cached.batch.tokens), -1)
    with model.editing([pushed(model)]):
        return continued_logits(model, cached, suffix), decode_cached(model, cached, 6)


@pytest.mark.parametrize("name", GOES_ON)
def test_prompts_that_were_captured_go_on_as_prompts_just_read(name: str, tiny: Build) -> None:
    model = tiny(name)
    asked = [render(model.tokenizer, ask(text, system="be kind and help.")) for text in TEXTS]
    spec = two_layers(model, asked)
    assert shared_prefixes(model, asked, spec)
    kept = kept_of(model, asked)
    plain, with_kept = capture(model, asked, spec, None), capture(model, asked, spec, kept)
    assert torch.equal(plain.values, with_kept.values)
    order = [2, 0, 3, 1, 0]
    batch = model.batch([asked[i] for i in order])
    logits, said = goes_on(model, cache_prompts(model, batch))  # also checks once that the model goes on
    with counting(model) as seen:
        cached = cache_prompts(model, batch, kept)
    found, also_said = goes_on(model, cached)
    torch.testing.assert_close(found, logits, atol=2e-4, rtol=0)
    assert said == also_said
    sliding = any(layer.is_sliding for layer in cached.cache.layers)  # of 8 tokens, shorter than most of the prompts
    assert bool(seen) == sliding


def two_layers(model: ChatModel, asked: list[Rendered]) -> ResolvedSpec:
    return resolved(EVERYTHING.model_copy(update={"layers": (0, 1)}), model, asked)  # of three or more


def test_only_prompts_that_are_not_kept_are_run_and_then_kept(tiny: Build) -> None:
    model, asked = tiny("llama"), rows(tiny("llama"))
    kept, batch = kept_of(model, asked), model.batch(asked)
    cache_prompts(model, batch)
    expected = goes_on(model, cache_prompts(model, batch))
    cache_prompts(model, model.batch(asked[:2]), kept)
    for n_run in (2, 0):
        with counting(model) as seen:
            found = goes_on(model, cache_prompts(model, batch, kept))
        torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
        assert found[1] == expected[1]
        prefilled = sum(seen[: len(seen) - 1 - 6])  # without the continuation and six steps
        assert prefilled == n_run * (len(asked[2].token_ids) - 1)


def test_memory_bounds_what_is_kept_and_nothing_makes_room_for_another(
    tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = tiny("llama"), rows(tiny("llama"))
    whole = kept_of(model, asked)
    for row in asked:
        cache_prompts(model, model.batch([row]), whole)
    sizes = [tokens.n_bytes for tokens, _ in whole._rows.values()]
    assert sizes == [8 * 16 * 3 * (len(row.token_ids) - 1) for row in asked]  # three layers of two heads of 8
    some = kept_of(model, asked, sizes[0] + sizes[1] + 1)
    for row in (*asked, *asked):
        cache_prompts(model, model.batch([row]), some)
    assert list(some._rows) == [tuple(row.token_ids[:-1]) for row in asked[:2]]
    monkeypatch.setattr(kept_prompts, "_free", lambda _device: 4 * sizes[0])
    shared = KeptPrompts(model, [row.token_ids for row in asked])
    for row in asked:
        cache_prompts(model, model.batch([row]), shared)  # as if another process took what this one does
    assert list(shared._rows) == [tuple(asked[0].token_ids[:-1])]
    unwanted = kept_of(model, asked[:1])
    cache_prompts(model, model.batch(asked), unwanted)
    assert list(unwanted._rows) == [tuple(asked[0].token_ids[:-1])]


def test_under_open_edits_nothing_is_kept_or_taken(tiny: Build) -> None:
    model, asked = tiny("llama"), rows(tiny("llama"))
    kept, batch = kept_of(model, asked), model.batch(asked)
    edit = pushed(model)
    with model.editing([edit]):
        cache_prompts(model, batch, kept)
        capture(model, asked, two_layers(model, asked), kept)
    assert not kept._rows
    cache_prompts(model, batch, kept)
    with model.editing([edit]), counting(model) as seen:
        cache_prompts(model, batch, kept)
    assert max(seen) >= batch.tokens[:, :-1].numel()


@pytest.mark.parametrize(
    "name", quick_and_slow("falcon_h1 mamba2", "zaya minimax lfm2 jamba qwen3_next recurrent_gemma")
)
def test_of_a_model_with_other_state_nothing_is_kept(name: str, tiny: Build) -> None:
    model, asked = tiny(name), rows(tiny(name))
    kept = kept_of(model, asked)
    plain, with_kept = (capture(model, asked, two_layers(model, asked), k) for k in (None, kept))
    assert torch.equal(plain.values, with_kept.values)
    cached, suffix = cache_prompts(model, model.batch(asked), kept), torch.tensor([[7, 9]]).expand(len(asked), -1)
    read_again = replace(cached, cache=None)
    with model.editing([pushed(model)]):
        found, expected = (continued_logits(model, each, suffix) for each in (cached, read_again))
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)
    assert not kept._rows
