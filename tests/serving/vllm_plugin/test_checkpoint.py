"""The fingerprint of a checkpoint on disk is that of the model which transformers loads from it."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from extract.errors import UserError
from extract.model.weights import cast_fingerprint
from extract.shipped import ROOT
from serving.vllm_plugin.placed import checkpoint_fingerprint

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_loaded_models(tmp_path: Path, dtype: torch.dtype, shards: bool, tied: bool) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                         num_attention_heads=2, tie_word_embeddings=tied)  # fmt: skip
    LlamaForCausalLM(config).to(dtype).save_pretrained(tmp_path, max_shard_size="4KB" if shards else "1GB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == shards
    weights = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert checkpoint_fingerprint(tmp_path) == cast_fingerprint(weights.items())


def test_other_weights_have_another_and_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ORGANISM, tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    weights["model.embed_tokens.weight"][:] *= 1.1
    save_file(weights, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    assert checkpoint_fingerprint(tmp_path / "other") != checkpoint_fingerprint(ORGANISM)
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"has no tensor model\.norm\.weight"):
        checkpoint_fingerprint(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"holds no model\.safetensors"):
        checkpoint_fingerprint(tmp_path / "other")
