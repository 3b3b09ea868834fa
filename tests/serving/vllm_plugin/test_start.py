"""Why vLLM does not start, in one line; what it prints meanwhile; fingerprints of checkpoints. tests/vllm starts it."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from extract.errors import UserError
from extract.model.weights import cast_fingerprint
from extract.shipped import ROOT
from serving.vllm_plugin.engine import held_back, why
from serving.vllm_plugin.placed import checkpoint_fingerprint

FAILED = RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}")
WORKER = "(VllmWorker-0 pid=8875) ERROR 11-26 06:19:31 [multiproc_executor.py:953] "
CPU = ("Available memory on node 0 (15.11/18.09 GiB) on startup is less than desired CPU memory utilization (0.92, "
       "16.64 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls the fraction.")  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ([f"{WORKER}Traceback (most recent call last):", f"{WORKER}ValueError: {CPU}", f"{WORKER}Exception: see trace"],
         "Available memory on node 0 (15.11/18.09 GiB) on startup is less than desired CPU memory utilization (0.92, "
         "16.64 GiB); set --engine-arg gpu_memory_utilization=0.5, or end other processes that use this memory"),
        (["extract.errors.UserError: d.safetensors was made for other weights"],
         "d.safetensors was made for other weights"),
        (["ValueError: Bfloat16 is not supported, use `--dtype=half` instead"],
         "Bfloat16 is not supported, use `--dtype=half` instead; set --engine-arg dtype=half"),
        (["nothing of use"], "Engine core initialization failed"),
    ],
)  # fmt: skip
def test_the_first_error_of_its_processes_is_the_cause(printed: list[str], line: str) -> None:
    assert why(FAILED, printed) == line


def test_an_error_before_its_processes_start_is_the_cause() -> None:
    assert why(TypeError("no such argument 'x'"), ["ValueError: of no account"]) == "no such argument 'x'"


@pytest.mark.parametrize("level", [None, "INFO"])
def test_what_processes_print_while_they_start_is_held_back(level, monkeypatch, capfd) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", str(level))
    if level is None:
        monkeypatch.delenv("VLLM_LOGGING_LEVEL")  # and unset again after the test
    code = "print('early'); input(); print('late')"
    with held_back() as printed:
        os.write(1, b"mine\n")  # past the stream that pytest puts in place
        child = subprocess.Popen([sys.executable, "-uc", code], stdin=subprocess.PIPE)
        while "early" not in printed:
            time.sleep(0.01)
    print("after")
    child.communicate(b"\n")
    out, err = capfd.readouterr()
    while "late" not in err:  # a thread passes it on
        err += capfd.readouterr().err
    assert out == "after\n"
    assert err.split() == (["mine", "early", "late"] if level else ["late"])


def test_a_failure_has_all_that_was_printed(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []

    def start() -> None:
        nonlocal lines
        with held_back() as lines:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(.2); print('the cause', flush=True)"])
            raise FAILED

    with pytest.raises(RuntimeError):
        start()
    assert lines == ["the cause"]
    print("later")
    assert capfd.readouterr() == ("later\n", "")


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


def test_the_fingerprint_of_experts_is_that_of_the_model_that_joins_them(tmp_path: Path) -> None:
    """A file holds a tensor for each expert, transformers' model one for all."""
    shape = Qwen3MoeConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, head_dim=8,
                           num_key_value_heads=1, num_experts=3, moe_intermediate_size=8)  # fmt: skip
    model = Qwen3MoeForCausalLM(shape)
    model.save_pretrained(tmp_path)
    assert any(".experts.2." in name for name in load_file(tmp_path / "model.safetensors"))
    assert checkpoint_fingerprint(tmp_path) == cast_fingerprint(model.state_dict(keep_vars=True).items())
