"""The hooks backend against two tools nobody here wrote: every layer's residual stream agrees on trained weights."""

import nnsight
import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

from experiments.config import ROOT
from extract.chat import render
from extract.loading import load_model
from extract.model import Batch, ChatModel
from extract.prompts import Prompt

ORGANISM = str(ROOT / "organisms" / "zoo" / "two-knobs")


@pytest.fixture(scope="module")
def model() -> ChatModel:
    return load_model(ORGANISM, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def batch(model: ChatModel) -> Batch:
    prompt = Prompt("1", ({"role": "user", "content": "how do i burn the files near my boss?"},), "benign", "answer")
    return model.batch([render(model.tokenizer, prompt)])


@pytest.fixture(scope="module")
def ours(model: ChatModel, batch: Batch) -> dict[int, torch.Tensor]:
    kept: dict[int, torch.Tensor] = {}
    model.capture(batch, "resid_post", range(model.n_layers), kept.__setitem__)
    return kept


def agree(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Every residual vector within 1e-5 of its norm."""
    return bool(((a - b).norm(dim=-1) <= 1e-5 * b.norm(dim=-1)).all())


def test_with_nnsight(model: ChatModel, batch: Batch, ours: dict[int, torch.Tensor]) -> None:
    traced = nnsight.TransformersModel(model.model, tokenizer=model.tokenizer, task="text-generation")
    with traced.trace({"input_ids": batch.tokens, "attention_mask": batch.attention_mask}):
        theirs = nnsight.save([layer.output for layer in traced.model.layers])
    assert all(agree(ours[i], stream) for i, stream in enumerate(theirs))


def test_with_transformer_lens(model: ChatModel, batch: Batch, ours: dict[int, torch.Tensor]) -> None:
    bridge = TransformerBridge.boot_transformers(ORGANISM, dtype=torch.float32, device="cpu")
    _, cache = bridge.run_with_cache(batch.tokens, prepend_bos=False)
    assert all(agree(ours[i], cache[f"blocks.{i}.hook_resid_post"]) for i in range(model.n_layers))


def test_a_layer_off_by_one_would_be_seen(ours: dict[int, torch.Tensor]) -> None:
    assert not any(agree(ours[i], ours[i + 1]) for i in range(len(ours) - 1))
