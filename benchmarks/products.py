"""Matrix products of plain completions: their rate at 64 rows, as a share of what oneDNN reaches at 512 rows.

A decode step multiplies one token of each row by every weight matrix of the blocks and by the head. `share_of_512_rows`
compares the rate of these products, as a `ChatModel` computes them, with that of 512 rows; `ratio_vs_linear` with
torch's `linear` at 64 rows. `share_of_completions` is the time that the products of whole completions (64 prompts of 45
tokens, 8 tokens each) would take at the rate of 512 rows, over the time that the completions take. All are measured in
turns, and the least time of each counts: a shared machine only adds to it.

On a CPU: a randomly initialised Qwen2.5-0.5B shape in float32. On a GPU: a Llama-3.1-8B shape in bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from benchmarks.shapes import ON_GPU, ORGANISM, random_model
from benchmarks.table import main
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, cache_prompts, decode_cached

ROWS, MANY_ROWS, PROMPT_TOKENS, NEW_TOKENS = 64, 512, 45, 8
Multiply = Callable[[nn.Linear, Tensor], Tensor]


def measure(quick: bool) -> dict[str, float]:
    """Time the products at both numbers of rows, and whole completions, in turns."""
    model = ChatModel(random_model(quick), AutoTokenizer.from_pretrained(ORGANISM, padding_side="left"), "random")
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(10, 1000, (ROWS, PROMPT_TOKENS), generator=generator).tolist()
    model.model.get_input_embeddings().weight.data *= (
        10  # so that some tokens are likely, as the check of the cache asks
    )
    cached = cache_prompts(model, model.pad(prompts, "left"))
    work: dict[str, Callable[[], object]] = {
        "ours": lambda: _multiply(model, ROWS, lambda part, x: part(x)),
        "linear": lambda: _multiply(model, ROWS, lambda part, x: nn.functional.linear(x, part.weight, part.bias)),
        "many": lambda: _multiply(model, MANY_ROWS, _by_onednn),
        "completions": lambda: _complete(model, cached),
    }
    seconds = {name: [_seconds(run)] for name, run in work.items()}  # the first is the slowest, and so a warm-up
    for _ in range(2 if quick else 3):
        for name, run in work.items():
            seconds[name].append(_seconds(run))
    least = {name: min(times) for name, times in seconds.items()}
    step = least["many"] * ROWS / MANY_ROWS
    return {
        "share_of_512_rows": step / least["ours"],
        "ratio_vs_linear": least["linear"] / least["ours"],
        "share_of_completions": NEW_TOKENS * step / least["completions"],
        "tokens_per_s": ROWS * NEW_TOKENS / least["completions"],
    }


@torch.inference_mode()
def _multiply(model: ChatModel, rows: int, multiply: Multiply) -> None:
    """Multiply random rows by every weight matrix once, so that none is in a core's cache."""
    parts = [part for part in model.model.modules() if isinstance(part, nn.Linear)]
    inputs = {n: torch.randn(rows, n, device=model.device, dtype=model.dtype) for n in {p.in_features for p in parts}}
    for part in parts:
        multiply(part, inputs[part.in_features])


def _by_onednn(part: nn.Linear, x: Tensor) -> Tensor:
    if ON_GPU or not torch.backends.mkldnn.is_available():
        return nn.functional.linear(x, part.weight, part.bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, part.weight, part.bias, "none", [], "")
    return product


def _complete(model: ChatModel, cached: CachedPrompts) -> None:
    decode_cached(model, cached, NEW_TOKENS, lambda scores, rows: torch.full((len(scores),), 7, device=scores.device))


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main("products", measure)
