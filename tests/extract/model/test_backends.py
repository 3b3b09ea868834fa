"""The three backends agree on every architecture: the residual stream at all sites, and generation under an edit."""

import copy
import inspect
import subprocess
from collections.abc import Callable
from typing import Any

import nnsight
import pytest
import torch
from torch import Tensor
from torch.nn import Module
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.generalized_components import AttentionBridge

from extract.errors import UserError
from extract.model.backends import BACKENDS, decoder_layers
from extract.model.chat_model import ChatModel
from extract.model.edit import SITES, Edit
from extract.model.padded_batch import Batch
from extract.model.read_state import state_of
from tests.extract.conftest import Build, alone, captured, hook_count, rows
from tests.support.covering import matrix

AFTER_ATTENTION = "llama qwen2 qwen3 mistral phi3 mixtral qwen3_moe granite organism stories260k".split()
MID = {  # the module that reads resid_mid, by hand: an oracle for what the backends find by themselves
    **dict.fromkeys(AFTER_ATTENTION, "post_attention_layernorm"),
    **dict.fromkeys(["gemma2", "gemma3_text"], "pre_feedforward_layernorm"),
    "gpt2": "ln_2",
    "gpt_neox in sequence": "post_attention_layernorm",
    "olmo2": "mlp",
}
ARCHITECTURES = [*MID, "gpt_neox"]
OTHERS = ["nnsight", "transformer_lens"]
NEW_TOKENS = 4


def agree(ours: Tensor, theirs: Tensor) -> bool:
    """Every residual vector within 1e-5 of its norm."""
    return bool(((ours - theirs).norm(dim=-1) <= 1e-5 * theirs.norm(dim=-1)).all())


def sites(name: str) -> list[str]:
    return [site for site in SITES if site != "resid_mid" or name != "gpt_neox"]


def push(model: ChatModel, site: str) -> Edit:
    """Add a large vector from the last prompt token on."""
    r = torch.nn.functional.normalize(torch.randn(model.d_model, generator=torch.Generator().manual_seed(1)), dim=0)

    def function(stream: Tensor, pass_: object) -> Tensor:
        covered = pass_.covers("last_on", stream.device)[None, :, None]  # type: ignore[attr-defined]
        return torch.where(covered, stream + 3 * stream.norm(dim=-1, keepdim=True) * r, stream)

    return Edit(site, 1, function)


@pytest.mark.parametrize("name", MID)
def test_resid_mid_is_what_the_second_half_of_a_block_reads(name: str, tiny: Build) -> None:
    model = tiny(name)
    batch, read = model.batch(rows(model)), {}
    handles = [
        getattr(layer, MID[name]).register_forward_pre_hook(lambda _m, args, i=i: read.__setitem__(i, args[0].clone()))
        for i, layer in enumerate(decoder_layers(model.model))
    ]
    mid = captured(model, batch, "resid_mid")
    model.logits(batch)
    for handle in handles:
        handle.remove()
    assert sorted(mid) == sorted(read) == list(range(model.n_layers))
    for layer, stream in mid.items():
        assert agree(stream, read[layer])
        if name != "granite":  # whose multiplier is known only as closely as it was measured
            assert torch.equal(stream, read[layer])


@matrix("name, backend", ARCHITECTURES, OTHERS)
def test_backends_capture_the_same_streams(name: str, backend: str, tiny: Build) -> None:
    ours, theirs = tiny(name), tiny(name, backend)
    rendered = rows(ours)
    batch = ours.batch(rendered)
    real = batch.attention_mask.bool()
    for site in sites(name):
        expected, found = captured(ours, batch, site), captured(theirs, batch, site)
        assert sorted(found) == list(range(ours.n_layers))
        for layer in range(ours.n_layers):
            assert agree(found[layer][real], expected[layer][real]), (site, layer)
    assert theirs.fingerprint() == ours.fingerprint()


@matrix("name, backend", ARCHITECTURES, BACKENDS)
def test_a_padded_batch_is_its_rows(name: str, backend: str, tiny: Build) -> None:
    model = tiny(name, backend)
    rendered = rows(model)
    lengths = [len(row.token_ids) for row in rendered]
    assert len(set(lengths)) > 1
    for side in ("left", "right"):
        batch = model.batch(rendered, side)
        starts = [max(lengths) - length if side == "left" else 0 for length in lengths]
        assert batch.n_pad.tolist() == starts
        for site in sites(name):
            together = captured(model, batch, site)
            for i, (row, start) in enumerate(zip(rendered, starts, strict=True)):
                for layer, stream in captured(model, alone(row), site).items():
                    assert agree(together[layer][i, start : start + len(row.token_ids)], stream[0]), (side, site, layer)


@matrix("name, backend", ARCHITECTURES, OTHERS)
def test_backends_intervene_alike_while_generating(name: str, backend: str, tiny: Build) -> None:
    ours, theirs = tiny(name), tiny(name, backend)
    batch = ours.batch(rows(ours))
    plain = ours.generate(batch, NEW_TOKENS, NEW_TOKENS)
    assert theirs.generate(batch, NEW_TOKENS, NEW_TOKENS) == plain
    for site in sites(name):
        with ours.editing([push(ours, site)]), theirs.editing([push(theirs, site)]):
            edited = ours.generate(batch, NEW_TOKENS, NEW_TOKENS)
            assert theirs.generate(batch, NEW_TOKENS, NEW_TOKENS) == edited
        assert edited != plain
        assert theirs.generate(batch, NEW_TOKENS, NEW_TOKENS) == plain


def test_transformer_lens_reads_its_cache_by_either_name(tiny: Build) -> None:
    """From transformers 5.24 on it is called `cache`, which TransformerLens 4.3 does not know: it forgot the prompt."""
    ours, theirs = tiny("llama"), tiny("llama", "transformer_lens")
    batch, renamed = ours.batch(rows(ours)), list[str]()

    def newer(_module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        renamed.extend(set(kwargs) & {"past_key_values"})
        return args, {"cache" if name == "past_key_values" else name: given for name, given in kwargs.items()}

    for part in theirs.model.modules():
        if isinstance(part, AttentionBridge):
            part.register_forward_pre_hook(newer, with_kwargs=True, prepend=True)
    expected = ours.generate(batch, NEW_TOKENS, NEW_TOKENS)
    assert theirs.generate(batch, NEW_TOKENS, NEW_TOKENS) == expected
    assert renamed or "cache" in inspect.signature(theirs.decoder.forward).parameters
    assert state_of({"past_key_values": None, "cache": batch}) is state_of({"past_key_values": batch}) is batch


def test_what_an_output_remembers_is_found_without_a_warning(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers 5.24 warns where an output is asked by the name that its cache had before."""
    monkeypatch.setattr("transformers.utils.generic.logger.warning_once", pytest.fail)
    model = tiny("llama")
    tokens = model.batch(rows(model)).tokens
    assert len(state_of(model.decoder(input_ids=tokens, use_cache=True)).layers) == model.n_layers


SECOND_HALF: dict[str, Callable[[Module, Tensor], Tensor]] = {  # resid_post of resid_mid, by hand
    "llama": lambda block, mid: mid + block.mlp(block.post_attention_layernorm(mid)),
    "gemma2": lambda block, mid: (
        mid + block.post_feedforward_layernorm(block.mlp(block.pre_feedforward_layernorm(mid)))
    ),
    "olmo2": lambda block, mid: mid + block.post_feedforward_layernorm(block.mlp(mid)),
    "gpt2": lambda block, mid: mid + block.mlp(block.ln_2(mid)),
    "granite": lambda block, mid: mid + 0.3 * block.mlp(block.post_attention_layernorm(mid)),
}


def after_setting(model: ChatModel, batch: Batch, site: str, layer: int, value: Tensor) -> Tensor:
    """Return resid_post of layer 1 once the stream at a place has been set."""
    seen: list[Tensor] = []
    look = Edit("resid_post", 1, lambda stream, _: seen.append(stream.clone()) or stream)
    with model.editing([Edit(site, layer, lambda *_: value), look]):
        model.logits(batch)
    return seen[0]


@matrix("name, backend", SECOND_HALF, BACKENDS)
def test_a_set_stream_reaches_the_residual_branch_and_the_next_block(name: str, backend: str, tiny: Build) -> None:
    model = tiny(name, backend)
    batch = model.batch(rows(model))
    value = torch.randn(*batch.tokens.shape, model.d_model, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        expected = SECOND_HALF[name](decoder_layers(tiny(name).model)[1], value)
    assert agree(after_setting(model, batch, "resid_mid", 1, value), expected)
    by_input = after_setting(model, batch, "resid_pre", 1, value)
    assert torch.equal(by_input, after_setting(model, batch, "resid_post", 0, value))
    assert torch.equal(after_setting(model, batch, "resid_post", 1, value), value)
    assert not torch.allclose(by_input, value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_looking_leaves_every_number_bitwise(backend: str, tiny: Build) -> None:
    model = tiny("gemma2", backend)
    batch = model.batch(rows(model))
    plain, response = model.logits(batch), model.generate(batch, NEW_TOKENS)
    with model.editing([Edit(site, layer, lambda stream, _: stream) for site in SITES for layer in range(3)]):
        assert torch.equal(model.logits(batch), plain)
        assert model.generate(batch, NEW_TOKENS) == response
    assert torch.equal(model.logits(batch), plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_edit_sees_the_callers_passes_only(backend: str, tiny: Build) -> None:
    """Finding where resid_mid is takes a pass of its own, once a model."""
    fresh = ChatModel(copy.deepcopy(tiny("llama").model), tiny("llama").tokenizer, "fresh", backend=backend)
    batch, seen = fresh.batch(rows(fresh)), list[tuple[int, ...]]()
    places = ("resid_pre", 0), ("resid_mid", 1)
    with fresh.editing([Edit(*at, lambda stream, _: seen.append(tuple(stream.shape)) or stream) for at in places]):
        fresh.logits(batch)
    assert seen == [(*batch.tokens.shape, fresh.d_model)] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_an_edit_raises_comes_through_and_leaves_nothing_behind(backend: str, tiny: Build) -> None:
    model = tiny("llama", backend)
    batch = model.batch(rows(model))
    plain, hooks = model.logits(batch), hook_count(model)

    def fail(_stream: Tensor, _pass: object) -> Tensor:
        raise KeyError("my own")

    for run in (model.logits, lambda batch: model.generate(batch, 3)):
        edits = [push(model, "resid_pre"), Edit("resid_post", 1, fail)]
        with pytest.raises(KeyError, match="my own"), model.editing(edits):
            run(batch)
        assert hook_count(model) == hooks
    assert torch.equal(model.logits(batch), plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_site_an_architecture_does_not_have_is_named(backend: str, tiny: Build) -> None:
    model = tiny("gpt_neox", backend)
    with pytest.raises(UserError, match=rf"the {backend} backend .*resid_mid on GPTNeoXForCausalLM") as caught:
        captured(model, model.batch(rows(model)), "resid_mid")
    assert "use resid_pre or resid_post" in str(caught.value)


def test_a_model_that_sees_installs_nothing(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge installs torchvision where the processor of images lacks it, and with it another torch."""
    called = list[object]()
    monkeypatch.setattr(subprocess, "check_call", lambda command, **_: called.append(command))
    tiny("gemma3", "transformer_lens")
    assert called == []


def test_an_architecture_a_backend_does_not_know_is_named(organism_tokenizer: object) -> None:
    from transformers import CTRLConfig, CTRLLMHeadModel

    shape = CTRLConfig(vocab_size=50, n_embd=16, n_layer=2, n_head=2, dff=16)
    with pytest.raises(UserError, match=r"the transformer_lens backend does not support CTRLLMHeadModel.*hooks"):
        ChatModel(CTRLLMHeadModel(shape), organism_tokenizer, "ctrl", backend="transformer_lens")


# -- two tools nobody here wrote, called as their own users call them ------------------------------------------------


@pytest.mark.parametrize("name", ["organism", "stories260k", "gemma2", "olmo2"])
def test_against_transformer_lens_itself(name: str, tiny: Build) -> None:
    model, other = tiny(name), tiny(name, "transformer_lens")
    bridge: TransformerBridge = other._backend._bridge
    batch = model.batch(rows(model)[:1])
    _, cache = bridge.run_with_cache(batch.tokens, prepend_bos=False)
    for site in SITES:
        for layer, stream in captured(model, batch, site).items():
            assert agree(stream, cache[f"blocks.{layer}.hook_{site}"]), (site, layer)


@pytest.mark.parametrize("name", ["organism", "stories260k"])
def test_against_nnsight_itself(name: str, tiny: Build) -> None:
    model = tiny(name)
    batch = model.batch(rows(model))
    traced = nnsight.TransformersModel(model.model, tokenizer=model.tokenizer, task="text-generation")
    with traced.trace({"input_ids": batch.tokens, "attention_mask": batch.attention_mask}):
        theirs = nnsight.save([layer.output for layer in traced.model.layers])
    ours, real = captured(model, batch, "resid_post"), batch.attention_mask.bool()
    assert all(agree(ours[i][real], stream[real]) for i, stream in enumerate(theirs))
