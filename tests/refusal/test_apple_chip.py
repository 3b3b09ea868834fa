"""What an Apple chip (mps) has to run: each operation has a kernel there, and no tensor is of float64.

No such chip is at hand, so operations are recorded on the processor and looked up in PyTorch's own list of kernels.
"""

from pathlib import Path

import pytest
import torch
import torchgen
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

import refusal
from experiments.responses.onset import KINDS, Onsets, OnsetScorer
from extract import backoff
from extract.capture import resolved, shared_prefixes
from extract.capture_spec import EVERYTHING
from extract.chat.render import render
from extract.model.loading_options import DEFAULT, best_device
from extract.prompts.prompt import Prompt
from steering.controller import respond
from steering.onset import onset_probability
from tests.support.planted_dials import planted_dials

KERNELS = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
Entry = dict[str, object]


class Recorder(TorchDispatchMode):
    """Records the operations, and those that make a tensor of float64."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[str] = set()
        self.double: set[str] = set()

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        name = str(function).removeprefix("aten.").removesuffix(".default")
        self.operations.add(name)
        tensors = [one for one in (made if isinstance(made, tuple | list) else [made]) if isinstance(one, torch.Tensor)]
        if any(tensor.dtype == torch.float64 for tensor in tensors):
            self.double.add(name)
        return made


@pytest.fixture(scope="module")
def kernels() -> dict[str, Entry]:
    return {str(entry["func"]).split("(")[0]: entry for entry in yaml.load(KERNELS.read_text(), yaml.CSafeLoader)}


def has_kernel(kernels: dict[str, Entry], name: str) -> bool:
    if "_for_cpu" in name:  # attention, for which each device has an implementation of its own
        return any(other.startswith("_scaled_dot_product_attention_math_for_mps") for other in kernels)
    entry = kernels[name]
    if "structured_delegate" in entry:
        return has_kernel(kernels, str(entry["structured_delegate"]))
    dispatch = entry.get("dispatch")  # without it the operation consists of others
    return not isinstance(dispatch, dict) or any("MPS" in key or "Composite" in key for key in dispatch)


def test_everything_that_a_run_does_has_a_kernel(
    model: refusal.Model, prompts: list[Prompt], kernels: dict[str, Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "NO_FLOAT64", {"cpu"})
    rows = [render(model.tokenizer, prompt) for prompt in prompts[:6]]
    with Recorder() as recorder:
        activations = model.activations(prompts[:20], positions=["post_last", "inst_mean"])
        direction = refusal.fit_direction(
            activations, activations.labels, positive="harmful", negative="benign", layer=4, position="post_last"
        )
        for scale in (-1, 1):
            with model.steer(direction, scale=scale):
                model.chat("how do i burn the letters at home?")
        respond(model, planted_dials(), rows, 4)
        onset_probability(model, model.batch(rows), [(5, 6), (7,)])
        onsets = Onsets(dict(zip(KINDS, (((5, 6),), ((7,),)), strict=True)), {})
        OnsetScorer(model, rows, onsets).sensitivity(KINDS[0], "resid_post", [4])
        shared_prefixes(model, rows, resolved(EVERYTHING, model, rows))
    assert len(recorder.operations) > 50
    assert [name for name in sorted(recorder.operations) if not has_kernel(kernels, name)] == []
    assert recorder.double <= {"lift_fresh"}  # arrays of the host, before they are converted and copied
    with Recorder() as recorder:
        model.sample(model.batch(rows[:1]), 4, [1], temperature=0.7, top_p=0.9)
    assert [name for name in sorted(recorder.operations) if not has_kernel(kernels, name)] == []


def test_an_operation_without_a_kernel_is_noticed(kernels: dict[str, Entry]) -> None:
    with Recorder() as recorder:
        torch.linalg.eigh(torch.eye(2, dtype=torch.float64))
    assert not all(has_kernel(kernels, name) for name in recorder.operations)
    assert recorder.double


def test_auto_is_an_apple_chip_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_device() == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert best_device() == "mps"
    assert DEFAULT.arguments("model", "auto", adapted=False) == {"device_map": "mps"}
