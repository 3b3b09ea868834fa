"""Weights that accelerate keeps in memory or on disk until a module computes (`device_map` with offload)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def weights_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the state dictionary; offloaded weights and those split over processes are fetched one by one."""
    for name, parameter in model.state_dict().items():
        if not parameter.is_meta:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            yield name, whole.detach()
            continue
        module, _, last = name.rpartition(".")
        owner = model.get_submodule(module)
        with align_module_device(owner, "cpu"):
            yield name, getattr(owner, last).detach()


def input_device(model: PreTrainedModel) -> torch.device:
    """Return where inputs go: the device of the weights, or the one that computes with the first offloaded ones."""
    if model.device.type != "meta":
        return model.device
    for module in model.modules():
        hook = getattr(module, "_hf_hook", None)
        for part in getattr(hook, "hooks", (hook,)):  # several hooks of a module are one SequentialHook
            if (found := getattr(part, "execution_device", None)) is not None:
                return torch.device(found)
    return torch.device("cpu")
