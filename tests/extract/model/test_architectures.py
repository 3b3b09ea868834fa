"""Each architecture at three scales of its weights: batches, captures, interventions and continuations are exact.

The table of docs/architectures.md holds what is found here, row by row.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from experiments.responses.setting import PromptBatch, Setting
from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import Capturer, resolved
from extract.capture_spec import CaptureSpec
from extract.errors import UserError
from extract.model import continuation
from extract.model.backends import decoder_layers, stream_out
from extract.model.chat_model import ChatModel
from extract.model.continuation import cache_prompts, continued_log_probs, decode_cached, way_of
from extract.model.decoding import cut_at_end
from extract.model.edit import Edit
from extract.model.loading_options import BackendName
from steering.interventions import place
from tests.extract.conftest import ROOT, Scaled, captured, pushed, quick_and_slow, rows
from tests.support.one_line import refused
from tests.support.tiny_model import each

ATTENTION = "llama mistral qwen3 gemma2 gemma3_text phi3 gpt2 gpt_neox olmo2 granite"
EXPERTS = "mixtral qwen3_moe gpt_oss glm4_moe deepseek_v3"
RECURRENT = (
    "lfm2 lfm2_moe qwen3_next qwen3_5_text qwen3_5_moe_text olmo_hybrid granitemoehybrid bamba jamba nemotron_h "
    "falcon_h1 zamba2 mamba mamba2 falcon_mamba recurrent_gemma zaya"
)
SEEING = "gemma3 gemma4 qwen2_5_vl qwen3_vl mistral3 lfm2_vl"  # which are asked in text
QUICK = "llama lfm2 gpt_oss mistral3"
EVERY = f"{ATTENTION} {EXPERTS} {RECURRENT} {SEEING}".split()
ALL = quick_and_slow(QUICK, " ".join(name for name in EVERY if name not in QUICK.split()))
SCALES = (1, 3, 6)  # times the initial weights: the larger they are, the more a wrong state changes the output
MOVED, MORE, NEW_TOKENS = (2, 0, 3), (7, 9, 11), 8


def agree(ours: Tensor, theirs: Tensor) -> bool:
    """Every residual vector within 1e-5 of its norm."""
    return bool(((ours - theirs).norm(dim=-1) <= 1e-5 * theirs.norm(dim=-1)).all())


@torch.inference_mode()
def by_hand(model: ChatModel, prompt: list[int], n: int) -> tuple[Tensor, list[int]]:
    """Answer one prompt under `pushed` without a batch, a cache or our code; return the stream of layer 1, too."""
    direction = torch.nn.functional.normalize(torch.arange(float(model.d_model)) - 9.0, dim=0)
    tokens, streams = list(prompt), list[Tensor]()

    def push(_module: object, _args: object, out: object) -> object:
        stream = stream_out(out).clone()
        streams.append(stream.clone())
        stream[:, len(prompt) - 1 :] += 9 * direction
        return (stream, *out[1:]) if isinstance(out, tuple) else stream

    handle = decoder_layers(model.model)[1].register_forward_hook(push)
    while len(tokens) < len(prompt) + n:
        best = int(model.model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())
        if best in model.eos_ids:
            break
        tokens.append(best)
    handle.remove()
    return streams[0][0], tokens[len(prompt) :]


@pytest.mark.parametrize("name", ALL)
def test_it_is_exact(name: str, scaled: Scaled) -> None:
    for scale in SCALES:
        model = scaled(name, scale)
        asked = rows(model)
        batch, plain = model.batch(asked), [by_hand(model, list(row.token_ids), NEW_TOKENS) for row in asked]
        together = captured(model, batch, "resid_post")[1]
        for i, (stream, _) in enumerate(plain):
            assert agree(together[i, -len(stream) :], stream)
        with model.editing([pushed(model)]):
            assert model.generate(batch, NEW_TOKENS) == [answer for _, answer in plain]
        cached = cache_prompts(model, batch)
        moved = continuation.rows_of(cached, torch.tensor(MOVED))
        found = continued_log_probs(model, moved, each(moved, MORE))
        for log_probs, row in zip(found, MOVED, strict=True):
            ids = torch.tensor([[*asked[row].token_ids, *MORE]])
            expected = model.model(ids).logits[0, -1 - len(MORE) :].log_softmax(-1)
            torch.testing.assert_close(log_probs, expected, atol=1e-4, rtol=0)
        if cached.cache is not None:
            with model.editing([pushed(model)]):
                said = decode_cached(model, cached, NEW_TOKENS)
            assert [cut_at_end(answer, model.eos_ids) for answer in said] == [answer for _, answer in plain]


def serves(scaled: Scaled, name: str, backend: BackendName) -> str:
    try:
        model = scaled(name, SCALES[-1], backend)
    except UserError:
        return "no"
    ours = scaled(name, SCALES[-1])
    batch = ours.batch(rows(ours))
    real = batch.attention_mask.bool()
    expected, found = (captured(each, batch, "resid_post")[1][real] for each in (ours, model))
    with ours.editing([pushed(ours)]), model.editing([pushed(model)]):
        same = ours.generate(batch, NEW_TOKENS) == model.generate(batch, NEW_TOKENS)
    return "yes" if agree(found, expected) and same else "DIFFERS"


@pytest.mark.parametrize("name", ALL)
def test_the_table_says_how_it_goes_on_and_which_backends_serve_it(name: str, scaled: Scaled) -> None:
    model = scaled(name, SCALES[-1])
    cache_prompts(model, model.batch(rows(model)))
    others: tuple[BackendName, ...] = ("nnsight", "transformer_lens")
    cells = [way_of(model), *(serves(scaled, name, backend) for backend in others)]
    row = " | ".join([f"| `{name}`", *cells]) + " |"
    assert row in (ROOT / "docs" / "architectures.md").read_text().splitlines()


def test_edits_act_at_every_token_where_the_state_counts_none(scaled: Scaled) -> None:
    """MiniMax's cache says that it has read no token, so that edits from the last prompt token on were left out."""
    model = scaled("minimax", 3)
    for row in rows(model):
        with model.editing([pushed(model)]):
            answer = model.generate(model.batch([row]), NEW_TOKENS)[0]
        assert answer == by_hand(model, list(row.token_ids), NEW_TOKENS)[1]


def test_prompts_are_read_again_where_padding_is_wrong_in_the_state(scaled: Scaled) -> None:
    model = scaled("minimax", 6)
    asked = rows(model)
    cached = cache_prompts(model, model.batch(asked))
    assert (cached.cache, way_of(model)) == (None, "from the start")
    found = continued_log_probs(model, cached, each(cached, MORE))
    for log_probs, row in zip(found, asked, strict=True):
        expected = model.model(torch.tensor([[*row.token_ids, *MORE]])).logits[0, -1 - len(MORE) :].log_softmax(-1)
        torch.testing.assert_close(log_probs, expected, atol=1e-4, rtol=0)
    answers = PromptBatch(model, asked).responses(Setting([pushed(model)]), range(len(asked)), NEW_TOKENS)
    assert answers == [by_hand(model, list(row.token_ids), NEW_TOKENS)[1] for row in asked]


def test_captured_responses_are_those_of_each_prompt_alone(scaled: Scaled) -> None:
    for name in ("minimax", "qwen3_next"):
        model = scaled(name, 6)
        asked = rows(model)
        spec = resolved(CaptureSpec(layers=(1,), positions=("inst_last",), response_tokens=NEW_TOKENS), model, asked)
        with BackgroundThread() as background:
            found = Capturer(model, spec, TokenBudget(10_000), background).capture(asked).responses
        for tokens, row in zip(found, asked, strict=True):
            alone = list(row.token_ids)
            for _ in range(NEW_TOKENS):
                alone.append(int(model.model(torch.tensor([alone]), use_cache=False).logits[0, -1].argmax()))
            assert list(tokens) == cut_at_end(alone[len(row.token_ids) :], model.eos_ids)


def test_a_state_that_is_wrong_by_less_than_rounding_allows_is_not_used(scaled: Scaled) -> None:
    """Jamba's scan forgets its state in a pass of several tokens, which moves a likely token by 7e-5."""
    model = scaled("jamba", 1)
    cached = cache_prompts(model, model.batch(rows(model)))
    assert way_of(model) != "at once"
    found = continued_log_probs(model, cached, each(cached, MORE))
    expected = continued_log_probs(model, replace(cached, cache=None), each(cached, MORE))
    torch.testing.assert_close(found, expected, atol=5e-6, rtol=0)


def test_gradients_do_not_go_through_a_state_that_steps_overwrite(scaled: Scaled) -> None:
    model = scaled("qwen3_next", 6)
    cached, gradients = cache_prompts(model, model.batch(rows(model))), list[torch.Tensor]()
    for one in (cached, replace(cached, cache=None)):
        shifts = list[torch.Tensor]()

        def watched(stream: torch.Tensor, _: object, shifts: list[torch.Tensor] = shifts) -> torch.Tensor:
            shifts.append(torch.zeros_like(stream, requires_grad=True))
            return stream + shifts[-1]

        with torch.enable_grad(), model.editing([Edit("resid_post", 1, watched)]):
            score = continued_log_probs(model, one, each(one, MORE))[..., 5].sum()
            gradients.append(torch.autograd.grad(score, shifts[-1])[0][:, -1 - len(MORE) :])
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 1e-3


def test_what_edits_did_to_a_prompt_is_not_lost_where_it_is_read_again(scaled: Scaled) -> None:
    """As in patching: edits are open while the prompts are read, and no more when it is gone on from them."""
    for name, says in (("recurrent_gemma", "what edits did to a prompt cannot be kept"), ("qwen3_next", "")):
        model = scaled(name, 6)
        batch = model.batch(rows(model))
        with model.editing([place("resid_post", 0, "last_prompt", lambda stream: stream + 1.0)]):
            if says:
                refused(says, cache_prompts, model, batch)
                continue
            cached = cache_prompts(model, batch)
        refused("cannot be differentiated after edits", continued_log_probs, model, cached, each(cached, MORE))
