"""Activations in memory: batches of any size agree, edits count from each prompt's own end, too much is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from extract import in_memory
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.errors import UserError
from extract.in_memory import Activations, capture_in_memory, with_response
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from tests.extract.conftest import TEXTS, Build, ask
from tests.support.one_line import refused

PROMPTS = [ask(text, id=str(i)) for i, text in enumerate(TEXTS)]
POSITIONS = ("inst_last", "post_last", "inst_mean", "response_2", "response_mean")


@pytest.fixture(params=["llama", "gemma2", "gpt2"])
def model(request: pytest.FixtureRequest, tiny: Build) -> ChatModel:
    return tiny(request.param)


def answered(model: ChatModel) -> list[Rendered]:
    """Render prompts with responses of 3, 0, 1 and 2 tokens."""
    rows = [render(model.tokenizer, prompt) for prompt in PROMPTS]
    return [with_response(row, [7, 8, 9][:n]) for row, n in zip(rows, (3, 0, 1, 2), strict=True)]


def capture(model: ChatModel, rows: list[Rendered], **settings: object) -> Activations:
    spec = CaptureSpec(**{"positions": POSITIONS, "layers": [1, 2]} | settings)
    return capture_in_memory(model, PROMPTS[: len(rows)], rows, spec)


def test_batches_of_any_size_agree(model: ChatModel) -> None:
    rows, done = answered(model), []
    spec = CaptureSpec(positions=POSITIONS, layers=[1, 2])
    found = capture_in_memory(model, PROMPTS, rows, spec, advance=done.append)
    assert sum(done) == len(rows)
    small = capture(model, rows, token_budget=1)
    assert np.array_equal(found.present, small.present)
    assert found.present[3:].tolist() == [[True, False, False, True], [True, False, True, True]]
    np.testing.assert_allclose(found.values, small.values, rtol=1e-3, atol=1e-4)
    assert np.array_equal(np.isnan(found.values).all(axis=(0, 3)), ~found.present)


def test_an_edit_sees_each_prompts_own_end(model: ChatModel) -> None:
    """As while the model generates: rows of unlike lengths, with responses of unlike lengths."""
    shift = torch.full((model.d_model,), 0.5)

    def push(stream: torch.Tensor, pass_: object) -> torch.Tensor:
        chosen = pass_.covers("last_on", stream.device)
        return torch.where(chosen[None, :, None], stream + shift, stream)

    rows = answered(model)
    plain = capture(model, rows, positions=["all"], layers=[1])
    with model.editing([Edit("resid_post", 1, push)]):
        edited = capture(model, rows, positions=["all"], layers=[1])
        together = capture(model, [render(model.tokenizer, prompt) for prompt in PROMPTS], positions=["post_last"])
        alone = [capture(model, [render(model.tokenizer, prompt)], positions=["post_last"]) for prompt in PROMPTS]
    assert np.array_equal(edited.present, plain.present)
    for i, prompt in enumerate(PROMPTS):
        end, n = len(render(model.tokenizer, prompt).token_ids) - 1, int(plain.present[:, i].sum())
        moved = (edited.values - plain.values)[0, :n, i]
        np.testing.assert_allclose(moved[:end], 0, atol=1e-4)
        np.testing.assert_allclose(moved[end:], 0.5, atol=1e-4)
        np.testing.assert_allclose(together.values[:, :, i], alone[i].values[:, :, 0], rtol=1e-4, atol=1e-5)


def test_nothing_is_generated(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    monkeypatch.setattr(ChatModel, "generate", lambda *_, **__: pytest.fail("generated"))
    rows = [render(model.tokenizer, prompt) for prompt in PROMPTS]
    plain, asked = (capture(model, rows, positions=["post_last"], **more) for more in ({}, {"response_tokens": 2}))
    assert np.array_equal(plain.values, asked.values)
    assert plain.positions == asked.positions


def test_what_does_not_fit_into_memory_is_refused(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    monkeypatch.setattr(in_memory, "BYTES", in_memory.psutil.virtual_memory().total)
    refused(r"activations need .* GB and this machine has .* GB: choose fewer layers", capture, model, answered(model))


def test_nothing_and_unknown_names_are_refused(tiny: Build) -> None:
    model = tiny("llama")
    refused("there are no prompts to capture", capture, model, [])
    with pytest.raises(UserError, match="no prompt has the position 'response_4'; choose from inst_last"):
        capture(model, answered(model), positions=["response_4"])
    refused("layer 3 does not exist: llama has layers 0 to 2", capture, model, answered(model), layers=[3])
