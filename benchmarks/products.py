"""The products of a CPU that models use (`FastLinear`) against torch's `linear`, in float32 and bfloat16, in turns.

Weights have the shapes of the large layers of Qwen2.5-0.5B and SmolLM2-135M. Ratios are torch's seconds over ours:
`float32` and `bfloat16` geometric means over shapes and rows, `least_…` the smallest of them. `bfloat16_vs_float32_…`
is how much faster ours are in bfloat16 than in float32: with one row, which is decoding, and with 64 rows or more.
"""

from __future__ import annotations

import time
from itertools import product
from statistics import geometric_mean, median

import torch
from torch import nn

from benchmarks.table import main
from extract.model.weights import use_fast_products

QWEN = ((896, 896), (4864, 896), (896, 4864), (151936, 896))  # outputs and inputs
SMOLLM = ((1536, 576), (576, 1536), (49152, 576))
ROWS = (1, 4, 16, 64, 256, 1024)
MANY = 64
LEAST_TURNS, SECONDS = 4, 0.4  # of both in turns
MOST_PRODUCTS = 1e11  # larger ones are left out


def measure(quick: bool) -> dict[str, float]:
    """Multiply by both layers in both types; return the ratios of their seconds."""
    shapes = SMOLLM[:1] if quick else QWEN + SMOLLM
    rows = (1, MANY) if quick else ROWS
    cases = [(n, *shape) for n, shape in product(rows, shapes) if n * shape[0] * shape[1] <= MOST_PRODUCTS]
    seconds = {dtype: [_seconds(*case, dtype, quick) for case in cases] for dtype in (torch.float32, torch.bfloat16)}
    figures: dict[str, float] = {}
    for dtype, name in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16")):
        ratios = [theirs / ours for theirs, ours in seconds[dtype]]
        figures |= {name: geometric_mean(ratios), f"least_{name}": min(ratios)}
    faster = [single / half for (_, single), (_, half) in zip(*seconds.values(), strict=True)]
    return figures | {
        "bfloat16_vs_float32_one_row": geometric_mean(f for (n, *_), f in zip(cases, faster, strict=True) if n == 1),
        "bfloat16_vs_float32_many_rows": geometric_mean(
            f for (n, *_), f in zip(cases, faster, strict=True) if n >= MANY
        ),
    }


@torch.inference_mode()
def _seconds(rows: int, outputs: int, inputs: int, dtype: torch.dtype, quick: bool) -> tuple[float, float]:
    """Return the median seconds of torch's product and of ours, for inputs of so many rows."""
    theirs, ours = (nn.Linear(inputs, outputs, bias=False, dtype=dtype) for _ in range(2))
    ours.load_state_dict(theirs.state_dict())
    model = nn.Sequential(ours)
    use_fast_products(model)
    given = torch.randn(rows, inputs).to(dtype)
    found: tuple[list[float], list[float]] = ([], [])
    began = time.perf_counter()
    while len(found[0]) < LEAST_TURNS or (not quick and time.perf_counter() - began < SECONDS):
        for layer, times in zip((theirs, ours), found, strict=True):
            before = time.perf_counter()
            layer(given)
            times.append(time.perf_counter() - before)
    first, second = (median(times[1:]) for times in found)  # the first of each may initialise
    return first, second


if __name__ == "__main__":
    main("products", measure)
