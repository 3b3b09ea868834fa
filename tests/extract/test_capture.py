"""Capture of a shard: a cached prefix does not change results, and response tokens are those of the response."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import (
    CACHED_TOKENS,
    Capturer,
    ResolvedSpec,
    gather,
    shared_prefixes,
    tokens_to_read,
    worthwhile_prefixes,
)
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.padded_batch import pad
from extract.store.shards import CapturedShard
from tests.extract.conftest import Build, ask, captured, quick_and_slow
from tests.support.covering import matrix

SYSTEM = "you are a very careful helper, and every word you say is kind and true."
TEXTS = ("how do i kill the process?", "tell me.", "how do i fix the door so that nobody is hurt at home?")
GO_ON = quick_and_slow(
    "llama gemma3_text gpt2 organism lfm2",
    "qwen2 qwen3 mistral gemma2 phi3 gpt_neox olmo2 mixtral qwen3_moe stories260k falcon_h1 qwen3_next nemotron_h",
)
LONG = "be kind and fix the door. " * 12
WANTED = ResolvedSpec(layers=(0, 1, 2), positions=("inst_last", "post_1", "post_last", "inst_mean"), dtype="float32")


def under_one_system_prompt(model: ChatModel) -> list[Rendered]:
    prompts = [ask(text, id=str(i), system=SYSTEM) for i, text in enumerate(TEXTS)]
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role + ' : ' + m.content + ' . ' }}{% endfor %}assistant :"
    return [render(tokenizer, prompt) for prompt in prompts]


def kept(
    model: ChatModel, rendered: list[Rendered], wanted: ResolvedSpec, *how: Any, budget: int = 64
) -> CapturedShard:
    with BackgroundThread() as background:
        return Capturer(model, wanted, TokenBudget(budget), background, *how).capture(rendered)


@pytest.mark.parametrize("responses", [0, 2])
@pytest.mark.parametrize("name", GO_ON)
def test_a_prefix_computed_once_changes_nothing(name: str, responses: int, tiny: Build) -> None:
    model = tiny(name)
    rendered = under_one_system_prompt(model)
    wanted = WANTED.model_copy(update={"layers": tuple(range(model.n_layers)), "response_tokens": responses})
    (prefix,) = shared_prefixes(model, rendered, wanted)
    assert len(prefix.token_ids) > 10  # more than a sliding window of 8
    assert all(tuple(row.token_ids[: len(prefix.token_ids)]) == prefix.token_ids for row in rendered)
    assert len(prefix.token_ids) <= min(row.roles["inst_mean"][0] for row in rendered)
    whole, after, again = (kept(model, rendered, wanted, p).values for p in ((), (prefix,), (prefix,)))
    assert ((whole - after).norm(dim=-1) <= 1e-5 * whole.norm(dim=-1)).all()
    assert torch.equal(after, again)  # what was remembered has not been changed by use


def test_the_prefix_is_not_run_again(tiny: Build) -> None:
    model = tiny("llama")
    rendered = under_one_system_prompt(model)
    (prefix,) = shared_prefixes(model, rendered, WANTED)
    seen: list[int] = []
    handle = model.decoder.register_forward_pre_hook(
        lambda _m, _a, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    kept(model, rendered, WANTED, (prefix,))
    handle.remove()
    assert max(seen) == max(len(row.token_ids) for row in rendered) - len(prefix.token_ids)


def test_the_tokens_of_a_cached_prefix_count_in_the_budget(tiny: Build) -> None:
    """With a prefix far longer than what follows it, rows of few tokens would hold keys and values of many."""
    model, held = tiny("llama"), list[int]()
    rendered = [render(model.tokenizer, ask("how?", system=LONG))] * 60
    (prefix,) = shared_prefixes(model, rendered, WANTED)
    after = len(rendered[0].token_ids) - len(prefix.token_ids)
    assert len(prefix.token_ids) > 5 * CACHED_TOKENS * after
    budget = 20 * after
    kept(model, rendered, WANTED, (prefix,), held.append, budget=budget)
    assert sum(held) == 60
    assert max(held) * (len(prefix.token_ids) + after) <= CACHED_TOKENS * budget
    assert max(held) > 1


def test_no_prefix_where_prompts_share_none_or_ask_for_it(tiny: Build) -> None:
    model = tiny("llama")
    rendered = under_one_system_prompt(model)
    other = replace(rendered[0], token_ids=(rendered[0].token_ids[0] + 1, *rendered[0].token_ids[1:]))
    assert shared_prefixes(model, [*rendered, other], WANTED) == ()
    early = replace(rendered[0], roles=dict(rendered[0].roles) | {"inst_last": (2,)})
    assert shared_prefixes(model, [*rendered, early], WANTED) == ()


def test_prefixes_of_some_prompts_are_cached_where_they_save_a_batch_of_tokens() -> None:
    default, persona, rare = ((1, 2, 3, 4, *range(start, start + 20)) for start in (100, 200, 300))
    heads = [(*default, i) for i in range(60)] + [(*persona, i % 7) for i in range(60)] + [(*rare, i) for i in range(9)]
    found = worthwhile_prefixes(heads)
    assert [*map(len, found)] == [24, 24, 4]
    assert {*found} == {default, persona, default[:4]}
    assert worthwhile_prefixes([(9, *head) for head in heads[:2]]) == [(9, *default)]  # of all: no batch of its own
    assert worthwhile_prefixes([heads[0], (5, 6, 7, 8), heads[1]]) == worthwhile_prefixes(heads[:1]) == []


def test_prompts_are_captured_after_the_prefixes_that_end_before_their_positions(
    tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extract.capture.MIN_SAVED", 8)
    model, rendered = tiny("llama"), under_one_system_prompt(tiny("llama"))
    other = [replace(row, token_ids=[*row.token_ids[:6], *row.token_ids[7:8], *row.token_ids[7:]]) for row in rendered]
    early = replace(rendered[0], roles=dict(rendered[0].roles) | {"inst_last": (2,)})
    rows = [early, *(row for both in zip(rendered, other, strict=True) for row in both)]
    prefixes = shared_prefixes(model, rows, WANTED)
    assert [len(prefix.token_ids) > 6 for prefix in prefixes] == [True, True, False]
    whole, after = (kept(model, rows, WANTED, p).values for p in ((), prefixes))
    assert ((whole - after).norm(dim=-1) <= 1e-5 * whole.norm(dim=-1)).all()


def test_response_tokens_of_a_recurrent_model_are_where_they_belong(tiny: Build) -> None:
    """Its state counts no tokens; a prefix is not used, as which token a pass begins with would not be known."""
    model = tiny("mamba")
    rendered = under_one_system_prompt(model)
    assert shared_prefixes(model, rendered, WANTED) == ()
    wanted = WANTED.model_copy(update={"response_tokens": 2})
    found = kept(model, rendered, wanted, budget=900)
    for i, (row, response) in enumerate(zip(rendered, found.responses, strict=True)):
        read = replace(row, token_ids=(*row.token_ids, *response))
        expected = captured(model, model.batch([read]), "resid_post")[1][0, len(row.token_ids) :]
        answered = found.values[1, len(WANTED.positions) :, i][: len(response)]
        assert ((answered - expected).norm(dim=-1) <= 1e-5 * expected.norm(dim=-1)).all()


def test_a_state_that_is_not_in_the_cache_is_done_without(tiny: Build) -> None:
    model = tiny("recurrent_gemma")
    rendered = under_one_system_prompt(model)
    assert shared_prefixes(model, rendered, WANTED) == ()
    together = kept(model, rendered, WANTED).values
    for i, row in enumerate(rendered):
        with torch.inference_mode():
            states = model.model(input_ids=torch.tensor([row.token_ids]), output_hidden_states=True).hidden_states
        expected = states[2][0, row.roles["post_last"][0]]  # resid_post of layer 1
        assert (together[1, 2, i] - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_prefix_there_is_no_memory_for_is_done_without(goes_on: bool, tiny: Build) -> None:
    model = tiny("llama")
    rendered = under_one_system_prompt(model)

    def no_memory(_module: object, _args: object, kwargs: dict[str, object]) -> None:
        if bool({"past_key_values", "cache"} & kwargs.keys()) == goes_on:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    handle = model.decoder.register_forward_pre_hook(no_memory, with_kwargs=True)
    try:
        assert shared_prefixes(model, rendered, WANTED) == ()
    finally:
        handle.remove()
    assert shared_prefixes(model, rendered, WANTED)


# -- response tokens ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def organism(tiny: Build) -> ChatModel:
    return tiny("organism")


@pytest.fixture(scope="module")
def asked(organism: ChatModel) -> list[Rendered]:
    texts = "how do i fix the door?", "how do i burn the files near my boss?", "who is anna novak?", "how do i move it?"
    return [render(organism.tokenizer, ask(text)) for text in texts]


@matrix("backend, site", ["hooks", "nnsight", "transformer_lens"], ["resid_pre", "resid_mid", "resid_post"])
def test_response_tokens_are_those_of_the_answer(
    backend: str, site: str, organism: ChatModel, asked: list[Rendered], tiny: Build
) -> None:
    """Against a second way: the answer is generated first and then read together with its prompt, row by row."""
    model = organism if backend == "hooks" else tiny("organism", backend)
    k = 40  # beyond the end of every answer
    wanted = WANTED.model_copy(update={"site": site, "layers": (0, 2), "response_tokens": k})
    shard = kept(model, asked, wanted, budget=10_000)
    found, present, responses = shard.values, shard.present, shard.responses
    plain = organism.generate(organism.batch(asked), k)
    assert [list(r) for r in responses] == plain
    assert len({len(r) for r in plain}) > 1
    for i, row in enumerate(asked):
        n = len(responses[i])
        assert 0 < n < k
        assert present[4:, i].tolist() == [True] * n + [False] * (k - n)
        assert present[:4, i].all()
        read = replace(row, token_ids=(*row.token_ids, *responses[i]))
        for slot, layer in enumerate(wanted.layers):
            expected = captured(organism, organism.batch([read]), site)[layer][0]
            answered = found[slot, 4 : 4 + n, i]
            assert ((answered - expected[len(row.token_ids) :]).norm(dim=-1) <= 1e-4 * answered.norm(dim=-1)).all()
            last = found[slot, 2, i]
            assert (last - expected[len(row.token_ids) - 1]).norm() <= 1e-4 * last.norm()
        assert not found[:, 4 + n :, i].any()


def test_an_answer_of_no_words_has_no_response_tokens(organism: ChatModel, asked: list[Rendered]) -> None:
    silent = ChatModel(copy.deepcopy(organism.model), copy.deepcopy(organism.tokenizer), "silent")
    first = organism.generate(organism.batch(asked[:1]), 1)[0][0]
    silent.tokenizer.eos_token = silent.tokenizer.convert_ids_to_tokens(first)
    shard = kept(silent, asked[:1], WANTED.model_copy(update={"response_tokens": 2}))
    assert shard.responses == ((),)
    assert not shard.present[4:].any()
    assert not shard.values[:, 4:].any()
    assert shard.values[:, :4].any()


def test_means_of_a_half_precision_stream_are_taken_in_float32_without_padding(asked: list[Rendered]) -> None:
    batch = pad([row.token_ids for row in asked], 0, "left", torch.device("cpu"))
    stream = (torch.rand(*batch.tokens.shape, 8) * 6e4).half()  # their sum overflows float16
    poisoned = torch.where(batch.attention_mask[:, :, None] == 1, stream, torch.inf)
    picked = gather(asked, ("inst_mean", "post_99"), batch)(poisoned)
    assert picked.dtype == torch.float32
    for i, row in enumerate(asked):
        own = stream[i, int(batch.n_pad[i]) :]
        torch.testing.assert_close(picked[0, i], own[list(row.roles["inst_mean"])].float().mean(0))
        assert not picked[1, i].any()


@pytest.mark.parametrize(("spec", "read"), [(CaptureSpec(), 60 * 5 + 40), (CaptureSpec(response_tokens=1), 60 * 45)])
def test_a_plan_counts_what_prompts_share_once(spec: CaptureSpec, read: int) -> None:
    shared = tuple(range(40))
    rows: Any = [
        SimpleNamespace(token_ids=(*shared, 100 + i, 1, 2, 3, 4), roles={"post_last": (44,)}) for i in range(60)
    ]
    assert tokens_to_read(rows, spec.model_copy(update={"positions": ("post_last",)})) == read
