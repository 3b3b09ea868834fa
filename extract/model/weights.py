"""A model's weights, also where accelerate offloads them: fingerprints, sampled (fast) and full, device, products."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def fingerprint(model: nn.Module) -> str:
    """Return a SHA-256 over every parameter's name, shape, dtype and about 256 evenly spaced values."""
    return _digest(weights_of(model), lambda w: f" {w.dtype}".encode() + _sample(w, torch.float32).numpy().tobytes())


def cast_fingerprint(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Return a fingerprint of the values rounded to bfloat16, which a cast of the weights to bfloat16 does not change.

    Weights in float16 and their casts have the same one, too; a cast from float32 to float16 may round otherwise.
    """
    return _digest(weights, lambda w: _sample(w, torch.bfloat16).view(torch.int16).numpy().tobytes())


def _digest(weights: Iterable[tuple[str, Tensor]], numbers: Callable[[Tensor], bytes]) -> str:
    digest = hashlib.sha256()
    for name, parameter in weights:
        digest.update(f"{name} {tuple(parameter.shape)}".encode() + numbers(parameter))
    return digest.hexdigest()


def _sample(parameter: Tensor, dtype: torch.dtype) -> Tensor:
    flat = parameter.reshape(-1)
    return flat[:: max(1, flat.numel() // 256)].to("cpu", dtype).contiguous()


def checksum(model: nn.Module) -> str:
    """Return a SHA-256 over every parameter's name, shape, dtype and the CRC-32 of all its bits.

    Unlike the instant `fingerprint` it notices one changed weight, in about a second per billion weights.
    """

    def crc(weight: Tensor) -> bytes:
        bits = weight.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f" {weight.dtype} {zlib.crc32(bits)}".encode()

    return _digest(weights_of(model), crc)


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
            if (device := getattr(part, "execution_device", None)) is not None:
                return torch.device(device)
    return torch.device("cpu")


# On a CPU oneDNN's products are faster than those of torch's `linear`, which uses MKL (benchmarks/products.py).
LARGE = 1 << 19  # weights; with fewer they are slower
# Both oneDNN and torch keep up to 1024 products, one for each number of rows and each shape, of some MB each: that is
# gigabytes, where every batch has another number of rows. Making one takes 0.6 ms.
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16", "LRU_CACHE_CAPACITY": "16"}


# A CPU that cannot multiply bfloat16 or float16 takes six times as long for them as for float32, with 128 to 1024 rows;
# with few rows most of the time goes to reading the weights, of which these have half as many bytes (AMD, AVX2).
FEW_ROWS = 16


class FastLinear(nn.Linear):
    """A linear layer that multiplies by oneDNN: on a CPU, without gradients; else as always.

    Numbers of 16 bits that the CPU cannot multiply are multiplied in float32, and the sums rounded, as is usual.
    """

    def forward(self, input: Tensor) -> Tensor:
        dtype, bias = self.weight.dtype, self.bias
        if input.dtype != dtype or input.device.type != "cpu" or torch.is_grad_enabled():
            return super().forward(input)
        if dtype != torch.float32 and (input.numel() < FEW_ROWS * input.shape[-1] or dtype not in slow_types()):
            return super().forward(input)
        given = input.float(), self.weight.float(), None if bias is None else bias.float()
        product: Tensor = torch.ops.mkldnn._linear_pointwise(*given, "none", [], "")
        return product.to(dtype)


@cache
def slow_types() -> frozenset[torch.dtype]:
    """Return the types of 16 bits that this CPU cannot multiply."""
    can = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
    }
    return frozenset(dtype for dtype, supported in can.items() if not supported)


def use_fast_products(model: nn.Module) -> None:
    """Let plain linear layers with large weights, or of 16 bits, multiply fast; their weights stay as they are.

    Limits what oneDNN keeps, by variables that it reads at its first product, where they are not set.
    """
    if not torch.backends.mkldnn.is_available():
        return
    for variable, most in CACHES.items():
        os.environ.setdefault(variable, most)
    for module in model.modules():
        if type(module) is nn.Linear and (module.weight.numel() >= LARGE or module.weight.dtype in slow_types()):
            module.__class__ = FastLinear
