"""Options of loading: each reaches transformers, and what does not fit together is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.model.loading_options import model_config
from extract.shipped import ROOT
from tests.support.one_line import refused

ORGANISM = str(ROOT / "organisms" / "zoo" / "two-knobs")
FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_compute_dtype": "float32"}
ROWS = [[1, 5, 6, 7, 8], [1, 5, 9, 9]]
SITES = ("resid_pre", "resid_mid", "resid_post")
IN_PARALLEL = """
import sys, torch
from tests.extract.model.test_loading_options import ORGANISM, ROWS, streams
from extract.model.loading import load_model
from extract.model.loading_options import model_config
model = load_model(ORGANISM, dtype="float32", device="cpu", loading={"tp_plan": "auto"})
split = sum(type(weight).__name__ == "DTensor" for weight in model.model.parameters())
found = {"streams": streams(model), "fingerprint": model.fingerprint(), "split": split,
         "said": model.generate(model.pad(ROWS, "left"), 5)}
torch.save(found, f"{sys.argv[1]}/{torch.distributed.get_rank()}.pt")
"""


def load(device: str = "cpu", **options: object) -> ChatModel:
    return load_model(ORGANISM, dtype="float32", device=device, loading=options)  # type: ignore[arg-type]


def streams(model: ChatModel) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    batch = model.pad(ROWS, "right")
    for site in SITES:
        model.capture(batch, site, range(model.n_layers), lambda n, x, s=site: found.__setitem__(f"{s} {n}", x.clone()))  # type: ignore[misc]
    return found


def test_attention_is_computed_as_asked() -> None:
    eager, plain = load(attn_implementation="eager"), load()
    assert eager.model.config._attn_implementation == "eager"
    assert plain.model.config._attn_implementation == "sdpa"
    for one, other in zip(streams(eager).values(), streams(plain).values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_weights_are_quantised_while_they_are_loaded() -> None:
    model, plain = load(quantization=FOUR_BITS), load()
    assert model.model.model.layers[0].self_attn.q_proj.weight.dtype == torch.uint8
    assert model.fingerprint() != plain.fingerprint()
    near, exact = streams(model)["resid_post 0"], streams(plain)["resid_post 0"]
    assert 1e-4 < float((near - exact).norm() / exact.norm()) < 0.3


@pytest.mark.slow
def test_memory_limits_choose_where_weights_go() -> None:
    model, plain = load("auto", max_memory={"cpu": "2MiB"}), load()
    assert set(model.model.hf_device_map.values()) == {"cpu", "disk"}
    assert model.fingerprint() == plain.fingerprint()
    for one, other in zip(streams(model).values(), streams(plain).values(), strict=True):
        torch.testing.assert_close(one, other)


def test_what_does_not_fit_together_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(part: str, adapted: bool = False, **options: object) -> None:
        refused(part, lambda: model_config(name="m", loading=options).loading.arguments("m", "cpu", adapted))

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    fails("an adapter cannot be merged into quantised weights", adapted=True, quantization=FOUR_BITS)
    fails("m: model.loading.quantization is not valid: ", quantization={"quant_method": "no such"})
    fails("m: model.loading.quantization is not valid: ", quantization={"load_in_9bit": True})
    fails("start them with: torchrun", tp_plan="auto")
    fails("no such key: loading.attention; did you mean loading.attn_implementation", attention="eager")
    refused("two-knobs does not hold a loadable model", load, attn_implementation="no such")


@pytest.mark.slow
def test_layers_split_over_two_processes_give_the_same_streams(tmp_path: Path) -> None:
    (tmp_path / "parallel.py").write_text(IN_PARALLEL)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(tmp_path / "parallel.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    whole = load()
    expected = streams(whole)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["split"] > 10
        assert found["fingerprint"] == whole.fingerprint()
        assert found["said"] == whole.generate(whole.pad(ROWS, "left"), 5)
        assert set(found["streams"]) == set(expected)
        for name, stream in found["streams"].items():
            assert float((stream - expected[name]).norm() / expected[name].norm()) < 1e-5, name
