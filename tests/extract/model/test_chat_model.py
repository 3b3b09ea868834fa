"""The hooks backend on tiny models of many architectures and on trained weights, compared with transformers."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.backends import decoder_layers
from extract.model.chat_model import ChatModel
from extract.model.continuation import cache_prompts, continued_log_probs
from extract.model.edit import Edit, Pass
from extract.model.weights import CACHES, checksum, fingerprint, use_fast_products
from extract.shipped import ROOT
from steering.interventions import affine, place
from tests.extract.conftest import Build, alone, captured, hook_count, quick_and_slow, random_weights, rows
from tests.support.one_line import refused
from tests.support.tiny_model import each

ARCHITECTURES = quick_and_slow(
    "llama gemma3_text gpt2", "organism qwen2 qwen3 mistral gemma2 phi3 gpt_neox olmo2 mixtral stories260k"
)


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, tiny: Build) -> ChatModel:
    return tiny(request.param)


@pytest.fixture
def llama(tiny: Build) -> ChatModel:
    return tiny("llama")


def unit(model: ChatModel, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(model.d_model, generator=generator), dim=0)


def strong(model: ChatModel) -> Edit:
    """Write a coordinate far off what the stream has, from the last prompt token on."""
    return place("resid_post", 1, "last_on", lambda stream: affine(stream, unit(model), 20.0))


# -- capture -----------------------------------------------------------------------------------------------------------


def test_captured_streams_are_the_hidden_states_of_transformers(model: ChatModel) -> None:
    batch = model.batch(rows(model))
    with torch.inference_mode():
        hidden = model.model(
            input_ids=batch.tokens, attention_mask=batch.attention_mask, position_ids=batch.position_ids,
            output_hidden_states=True, use_cache=False,
        ).hidden_states  # fmt: skip
    pre, post = captured(model, batch, "resid_pre"), captured(model, batch, "resid_post")
    assert sorted(pre) == sorted(post) == list(range(model.n_layers))
    for layer in range(model.n_layers):
        assert torch.equal(pre[layer], hidden[layer])
    for layer in range(model.n_layers - 1):
        assert torch.equal(post[layer], hidden[layer + 1])
    base = model.model.base_model
    norm = next(getattr(base, name) for name in ("norm", "ln_f", "final_layer_norm") if hasattr(base, name))
    with torch.inference_mode():  # the last block's output stands before the final norm, hidden_states[-1] after it
        assert torch.equal(norm(post[model.n_layers - 1]), hidden[-1])
    assert not torch.equal(post[model.n_layers - 1], hidden[-1])


def test_capture_runs_no_layer_beyond_the_last_one_wanted(llama: ChatModel) -> None:
    ran: list[int] = []
    layers, kept = decoder_layers(llama.model), list[int]()
    handles = [layer.register_forward_hook(lambda *_, i=i: ran.append(i)) for i, layer in enumerate(layers)]
    llama.capture(llama.batch(rows(llama)), "resid_post", [1, 0], lambda layer, _: kept.append(layer))
    for handle in handles:
        handle.remove()
    assert kept == [0, 1]
    assert 2 not in ran


# -- editing -----------------------------------------------------------------------------------------------------------


def test_an_edit_acts_where_it_is_placed(model: ChatModel) -> None:
    batch, r = model.batch(rows(model)), unit(model)
    plain = {site: captured(model, batch, site) for site in ("resid_pre", "resid_post")}
    for site in ("resid_pre", "resid_post"):
        with model.editing([place(site, 1, "last_prompt", lambda stream: affine(stream, r, 7.0))]):
            edited = {s: captured(model, batch, s) for s in ("resid_pre", "resid_post")}
        there = edited[site][1]
        assert torch.allclose(there[:, -1] @ r, torch.tensor(7.0), atol=1e-4)
        assert torch.equal(there[:, :-1], plain[site][1][:, :-1])
        assert torch.equal(edited["resid_post"][0], plain["resid_post"][0])
        assert not torch.equal(edited["resid_post"][2][:, -1], plain["resid_post"][2][:, -1])


def test_blocks_that_two_threads_hold_end_in_any_order(llama: ChatModel) -> None:
    """A server's thread ends its block after another thread has begun one: that one's edits must go on."""
    batch, plain = llama.batch(rows(llama)), llama.logits(llama.batch(rows(llama)))
    first, second = llama.editing([strong(llama)]), llama.editing([strong(llama), strong(llama)])
    first.__enter__()
    second.__enter__()
    kept = llama.edits[1:]
    first.__exit__(None, None, None)
    assert llama.edits == kept
    assert not torch.equal(llama.logits(batch), plain)
    second.__exit__(None, None, None)
    assert llama.edits == ()
    assert torch.equal(llama.logits(batch), plain)


def test_a_layer_that_does_not_exist_is_named_and_leaves_no_hooks(llama: ChatModel) -> None:
    hooks = hook_count(llama)
    for layer in (3, -1):
        edits = [Edit("resid_post", 0, lambda stream, _: stream), Edit("resid_post", layer, lambda stream, _: stream)]
        refused(f"layer {layer} does not exist: llama has layers 0 to 2", llama.editing(edits).__enter__)
        assert hook_count(llama) == hooks


def test_edits_of_blocks_called_without_the_decoder_are_refused(tiny: Build) -> None:
    """OPT's language-model head calls an inner decoder directly, so the pass is not recorded; capturing works."""
    model = tiny("opt")
    batch, hooks = model.batch(rows(model)), hook_count(model)
    plain = model.logits(batch)
    for action in (lambda: model.logits(batch), lambda: model.generate(batch, 3)):
        with pytest.raises(UserError) as error, model.editing([strong(model)]):
            action()
        assert str(error.value) == ("opt: OPTForCausalLM calls its blocks without its decoder, so the tokens of a pass "
                                    "are unknown to edits; use another model")  # fmt: skip
        assert hook_count(model) == hooks
    assert torch.equal(model.logits(batch), plain)
    for row in rows(model):
        with torch.inference_mode():
            hidden = model.model(input_ids=alone(row).tokens, output_hidden_states=True).hidden_states
        assert torch.equal(captured(model, alone(row), "resid_post")[1], hidden[2])


def test_edits_at_one_place_act_in_the_order_given(llama: ChatModel) -> None:
    batch, r = llama.batch(rows(llama)), unit(llama)
    low, high = (place("resid_post", 1, "all", lambda s, t=t: affine(s, r, t)) for t in (-3.0, 5.0))
    seen: list[Tensor] = []
    look = Edit("resid_post", 1, lambda stream, _: seen.append(stream @ r) or stream)
    for edits, value in (([low, high, look], 5.0), ([high, low, look], -3.0)):
        with llama.editing(edits):
            llama.logits(batch)
        assert torch.allclose(seen.pop(), torch.tensor(value), atol=1e-4)


# -- scopes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pass_", "prefill", "covered"),
    [
        (Pass(0, 5, 5), True, {"last_prompt": [4], "last_on": [4], "all": [0, 1, 2, 3, 4]}),
        (Pass(0, 7, 5), True, {"last_prompt": [4], "last_on": [4, 5, 6], "all": [0, 1, 2, 3, 4, 5, 6]}),
        (Pass(0, 4, 5), False, {"last_prompt": [], "last_on": [], "all": [0, 1, 2, 3]}),
        (Pass(4, 3, 5), True, {"last_prompt": [0], "last_on": [0, 1, 2], "all": [0, 1, 2]}),
        (Pass(5, 1, 5), False, {"last_prompt": [], "last_on": [0], "all": [0]}),
        (Pass(9, 1, 5), False, {"last_prompt": [], "last_on": [0], "all": [0]}),
    ],
)
def test_scopes_cover_their_tokens(pass_: Pass, prefill: bool, covered: dict[str, list[int]]) -> None:
    assert pass_.is_prefill is prefill
    for scope, index in covered.items():
        mask = pass_.covers(scope, torch.device("cpu"))
        assert mask.dtype == torch.bool
        assert mask.shape == (pass_.length,)
        assert mask.nonzero().flatten().tolist() == index


def test_passes_of_generation_are_one_prefill_and_then_single_tokens(model: ChatModel) -> None:
    batch = model.batch(rows(model))
    passes: list[Pass] = []
    with model.editing([Edit("resid_pre", 0, lambda stream, pass_: passes.append(pass_) or stream)]):
        model.generate(batch, 12, min_new_tokens=12)
    length = batch.prompt_length
    found = [(p.start, p.length, p.is_prefill) for p in passes]
    assert found == [(0, length, True), *((length + i, 1, False) for i in range(11))]


# -- distributions and decoding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("steered", [False, True])
def test_continued_log_probs_are_those_of_a_whole_forward_pass(model: ChatModel, steered: bool) -> None:
    rendered = rows(model)
    batch, continuation = model.batch(rendered), (9, 30, 11)
    remembered = cache_prompts(model, batch)
    edits = [strong(model)] if steered else []
    with model.editing(edits):
        found = continued_log_probs(model, remembered, each(remembered, continuation))
        again = continued_log_probs(model, remembered, each(remembered, continuation))
        shorter = continued_log_probs(model, remembered, each(remembered, ()))
    assert torch.equal(again, found)  # the cache is not used up
    assert torch.allclose(shorter, found[:, :1], atol=1e-4)
    assert torch.allclose(found.exp().sum(-1), torch.tensor(1.0), atol=1e-4)
    for i, row in enumerate(rendered):
        expected = whole_forward(model, row, continuation, unit(model) if steered else None)
        assert torch.allclose(found[i], expected, atol=2e-3)
    if steered:
        assert not torch.allclose(
            found, continued_log_probs(model, remembered, each(remembered, continuation)), atol=1e-2
        )


def whole_forward(model: ChatModel, row: Rendered, continuation: tuple[int, ...], r: Tensor | None) -> Tensor:
    """Run prompt and continuation at once without a cache, edited by a hook of the test's own."""
    n, tokens = len(row.token_ids), torch.tensor([[*row.token_ids, *continuation]])

    def hook(_module: object, _args: object, out: Tensor | tuple) -> Tensor | tuple:
        stream = (out[0] if isinstance(out, tuple) else out).clone()
        stream[:, n - 1 :] += (20.0 - stream[:, n - 1 :] @ r)[..., None] * r
        return (stream, *out[1:]) if isinstance(out, tuple) else stream

    handle = None if r is None else decoder_layers(model.model)[1].register_forward_hook(hook)
    with torch.inference_mode():
        out = model.model(input_ids=tokens, use_cache=False).logits[0, n - 1 :].float().log_softmax(-1)
    if handle is not None:
        handle.remove()
    return out


def test_generation_is_the_greedy_decoding_of_transformers_row_by_row(model: ChatModel) -> None:
    rendered = rows(model)
    together = model.generate(model.batch(rendered), 16)
    for row, response in zip(rendered, together, strict=True):
        tokens = torch.tensor([row.token_ids])
        out = model.model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=16,
                                   eos_token_id=model.eos_ids, pad_token_id=0)  # fmt: skip
        expected = out[0, tokens.shape[1] :].tolist()
        assert response == expected[: next((i for i, t in enumerate(expected) if t in model.eos_ids), len(expected))]
    assert len({tuple(response) for response in together}) > 1


def test_generation_under_an_edit_is_step_by_step_argmax(model: ChatModel) -> None:
    rendered = rows(model)
    with model.editing([strong(model)]):
        steered = model.generate(model.batch(rendered), 6, min_new_tokens=6)
    for row, response in zip(rendered, steered, strict=True):
        scores = whole_forward(model, row, tuple(response), unit(model))[: len(response)].clone()
        scores[:, model.eos_ids] = -torch.inf
        assert scores.argmax(-1).tolist() == response


@pytest.mark.parametrize("where", ["generation_config", "config"])
def test_any_of_several_ends_stops_a_row(llama: ChatModel, where: str) -> None:
    batch = llama.batch(rows(llama))
    plain = llama.generate(batch, 10, min_new_tokens=10)
    ends = [plain[0][4], plain[1][6]]
    weights = copy.deepcopy(llama.model)
    getattr(weights, where).eos_token_id = ends
    several = ChatModel(weights, llama.tokenizer, "ends")
    assert set(several.eos_ids) == {2, *ends}
    cut = several.generate(batch, 10)
    for before, after in zip(plain, cut, strict=True):
        assert after == before[: next((i for i, t in enumerate(before) if t in several.eos_ids), 10)]
    assert len(cut[0]) <= 4
    assert len(cut[1]) <= 6


@pytest.mark.parametrize(
    "own",
    [{"do_sample": True, "temperature": 5.0, "top_k": 3, "top_p": 0.5}, {"repetition_penalty": 1.8},
     {"num_beams": 3, "length_penalty": 2.0}, {"no_repeat_ngram_size": 1}, {"suppress_tokens": list(range(3, 900))},
     {"min_length": 500}, {"max_length": 20}],
)  # fmt: skip
def test_decoding_is_greedy_and_ignores_the_generation_config(llama: ChatModel, own: dict) -> None:
    batch = llama.batch(rows(llama))
    opinionated = ChatModel(copy.deepcopy(llama.model), llama.tokenizer, "opinionated")
    config = GenerationConfig(eos_token_id=2, pad_token_id=0, **own)
    opinionated.model.generation_config = config
    assert opinionated.generate(batch, 20) == llama.generate(batch, 20)
    assert opinionated.model.generation_config is config


def test_a_pad_token_is_found_when_there_is_none(llama: ChatModel) -> None:
    rendered = rows(llama)
    expected = llama.generate(llama.batch(rendered), 6)
    for end in (2, None):
        tokenizer, bare = copy.deepcopy(llama.tokenizer), copy.deepcopy(llama.model)
        tokenizer.pad_token = None
        bare.generation_config.pad_token_id = None
        if end is None:
            tokenizer.eos_token = None
            bare.config.eos_token_id = bare.generation_config.eos_token_id = None
        model = ChatModel(bare, tokenizer, "bare")
        assert model.generate(model.batch(rendered), 6) == expected


# -- the model as a whole ----------------------------------------------------------------------------------------------


def test_decoder_layers_are_found_by_their_number(llama: ChatModel) -> None:
    assert decoder_layers(llama.model) is llama.model.model.layers
    other = copy.deepcopy(llama.model)
    other.config.num_hidden_layers = 7
    with pytest.raises(UserError, match="LlamaForCausalLM: expected one list of 7 transformer blocks, found 0; "
                       "this architecture is not supported by the hooks backend"):  # fmt: skip
        decoder_layers(other)
    other.config.num_hidden_layers = 3
    other.model.more = torch.nn.ModuleList([torch.nn.Identity() for _ in range(3)])
    refused("expected one list of 3 transformer blocks, found 2", decoder_layers, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_altered_weight_escapes_the_checksum(llama: ChatModel, dtype: torch.dtype) -> None:
    model = copy.deepcopy(llama.model).to(dtype)
    quick, before = fingerprint(model), checksum(model)
    weight = model.get_input_embeddings().weight.detach()
    weight[5, 3] *= 2
    assert (fingerprint(model), checksum(model) != before) == (quick, True)  # the control: the quick one misses it
    weight[5, 3] /= 2
    assert checksum(model) == before


@pytest.mark.parametrize("name", quick_and_slow("llama gemma3_text gpt2", "qwen2 gemma2 phi3 gpt_neox olmo2 mixtral"))
@pytest.mark.parametrize("backend", ["hooks", "transformer_lens"])
def test_fast_products_agree_and_leave_the_weights(
    name: str, backend: str, organism_tokenizer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = random_weights(name, organism_tokenizer)  # type: ignore[arg-type]
    for bias in (value for key, value in weights.named_parameters() if key.endswith("bias")):
        torch.nn.init.normal_(bias)  # zero before
    plain = ChatModel(copy.deepcopy(weights), organism_tokenizer, name, backend=backend)  # type: ignore[arg-type]
    batch, before = plain.batch(rows(plain)), checksum(weights)
    expected, whole = plain.logits(batch), captured(plain, batch, "resid_pre")
    monkeypatch.setattr("extract.model.weights.LARGE", 1)
    product, calls = torch.ops.mkldnn._linear_pointwise, []
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda *args: calls.append(1) or product(*args))
    fast = ChatModel(copy.deepcopy(weights), organism_tokenizer, name, backend=backend)  # type: ignore[arg-type]
    torch.testing.assert_close(fast.logits(batch), expected, atol=1e-4, rtol=1e-4)
    assert calls
    for layer, stream in captured(fast, batch, "resid_pre").items():
        torch.testing.assert_close(stream, whole[layer], atol=1e-4, rtol=1e-4)
    if backend != "hooks":  # it puts modules of its own around
        return
    assert checksum(copy.deepcopy(fast.model)) == before
    calls.clear()
    loss = fast.model(input_ids=batch.tokens).logits.square().sum()
    assert torch.autograd.grad(loss, fast.model.get_input_embeddings().weight)[0].any()
    monkeypatch.setattr("extract.model.weights.slow_types", frozenset)
    fast.model.to(torch.bfloat16)
    fast.logits(batch)
    assert not calls  # with gradients and in dtypes that the CPU multiplies itself all is as always


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_what_the_cpu_cannot_multiply_is_multiplied_in_float32(
    dtype: torch.dtype, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extract.model.weights.slow_types", lambda: {dtype})
    product, calls = torch.ops.mkldnn._linear_pointwise, []
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda *args: calls.append(1) or product(*args))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain, given = torch.nn.Linear(96, 48, bias, dtype=dtype), torch.randn(2, 40, 96, dtype=dtype)
    exact = torch.nn.functional.linear(given.double(), plain.weight.double(), plain.bias.double() if bias else None)
    fast = torch.nn.Sequential(copy.deepcopy(plain))
    use_fast_products(fast)
    with torch.inference_mode():
        for rows, through in ((7, 0), (8, 1), (40, 1)):
            calls.clear()
            out = fast(given[:, :rows])
            assert (out.dtype, len(calls)) == (dtype, through)
            torch.testing.assert_close(out.double(), exact[:, :rows].to(dtype).double(), rtol=2**-7, atol=1e-3)
    assert fast[0].weight.dtype == dtype


GROWTH = """
import psutil, torch
from extract.model.weights import use_fast_products
model, process, seen = torch.nn.Sequential(torch.nn.Linear(896, 4864)), psutil.Process(), []
use_fast_products(model)
with torch.inference_mode():
    for rows in range(1, 400):
        model(torch.zeros(rows, 896))
        seen.append(process.memory_info().rss)
print((seen[-1] - seen[50]) >> 20)
"""


@pytest.mark.slow
def test_what_fast_products_keep_does_not_grow_with_the_numbers_of_rows() -> None:
    def grown(**caches: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", GROWTH],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | caches,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    assert grown() < 60  # megabytes
    assert grown(**dict.fromkeys(CACHES, "1024")) > 150  # the control: what oneDNN and torch do by themselves


def test_a_prompt_longer_than_the_context_is_refused(llama: ChatModel) -> None:
    assert llama.context is not None
    batch = llama.pad([[5] * llama.context, [5, 6]], "left")
    assert batch.prompt_length == llama.context
    with pytest.raises(UserError, match=rf"^a prompt has {llama.context + 1:,} tokens, but the model's context has"):
        llama.pad([[5] * (llama.context + 1)], "left")
