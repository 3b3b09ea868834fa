"""Fingerprints of weights that are not on a device."""

import copy
from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, disk_offload
from torch import nn

from extract.model.weights import cast_fingerprint, checksum, fingerprint
from tests.support.tiny_model import TEXTS, rendered, tiny_llama


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_offloading_changes_no_fingerprint(tmp_path: Path, place: str) -> None:
    there, away = tiny_llama(), tiny_llama()
    if place == "memory":
        cpu_offload(away.model, execution_device=torch.device("cpu"))
    else:
        disk_offload(away.model, tmp_path, execution_device=torch.device("cpu"))
    assert any(weight.is_meta for weight in away.model.parameters())
    assert fingerprint(away.model) == fingerprint(there.model)
    assert checksum(away.model) == checksum(there.model)
    assert any(weight.is_meta for weight in away.model.parameters())
    batch = away.batch(rendered(away, TEXTS))
    torch.testing.assert_close(away.logits(batch), there.logits(batch))
    seen: list[torch.Tensor] = []
    for model in (away, there):
        rows = model.batch(rendered(model, TEXTS), "right")
        model.capture(rows, "resid_mid", [2], lambda _, stream: seen.append(stream.clone()))
    torch.testing.assert_close(*seen)
    assert seen[0].abs().max() > 0


def test_a_cast_changes_the_fingerprint_but_not_the_one_for_casts() -> None:
    wide, other = tiny_llama().model, tiny_llama().model
    known, known_cast = fingerprint(wide), cast_of(wide)
    narrow = tiny_llama().model.to(torch.bfloat16)
    assert fingerprint(narrow) != known
    assert cast_of(narrow) == known_cast
    assert cast_of(narrow.to(torch.float32)) == known_cast
    half = tiny_llama().model.to(torch.float16)
    assert cast_of(half) == cast_of(copy.deepcopy(half).to(torch.float32))
    with torch.no_grad():
        nn.Module.get_submodule(other, "model.layers.2.mlp.up_proj").weight.mul_(1.01)
    assert cast_of(other) != known_cast


def cast_of(model: nn.Module) -> str:
    return cast_fingerprint(model.state_dict().items())
