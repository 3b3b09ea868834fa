"""Speed and memory of extraction to disk, compared with a plain forward pass and four other tools, interleaved.

Our extraction is measured end to end: rendering, forward passes, copies, checksums and the finished store, with four
positions at every layer. The baseline is a plain padded `model(**batch)` with its head, in file order at batch 16,
which stores nothing. The others are `output_hidden_states`, TransformerLens, nnsight, and, if installed, nnterp and
lmprobe; they keep the same four positions in memory and write nothing. Rates count real tokens only, without padding.

On a CPU: a randomly initialised Qwen2.5-0.5B shape in float32. On a GPU: a Llama-3.1-8B shape in bfloat16.
`fraction_of_matmul` is the time of the blocks' linear layers alone, measured in the same run, divided by our time.
`ratio_vs_bare_forward_shared_prompt` is the same ratio where all prompts begin with one system prompt of 200 tokens.
`memory_few_mb` and `memory_many_mb` are the peak memory beyond the model at 1,000 and 20,000 prompts, including the
prompts and their tokens, for a small model whose shards are small.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from benchmarks.decoding.steering_tools import booted_bridge
from benchmarks.memory import peak_beyond_mb
from benchmarks.shapes import ON_GPU, ORGANISM, random_model
from benchmarks.table import main
from extract.background import call_in_subprocess
from extract.backoff import TOKENS_ON_CPU, TOKENS_ON_GPU
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.extraction import extract
from extract.model.backends import decoder_layers
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.model.loading_options import quiet_libraries
from extract.prompts.prompt import Prompt

POSITIONS = ("inst_last", "post_1", "post_last", "inst_mean")
WORDS = "how do i fix the door open lock move clean hide lift push my old house car garden near at home today"
Arm = Callable[[list[Prompt]], None]


def measure(quick: bool) -> dict[str, float]:
    """Time every tool in interleaved rounds and compare medians."""
    model = ChatModel(random_model(quick), AutoTokenizer.from_pretrained(ORGANISM, padding_side="left"), "random")
    prompts = _prompts(24 if quick else 4096 if ON_GPU else 64, seed=0)
    tokens = sum(len(row.token_ids) for row in _rendered(model, prompts))
    with tempfile.TemporaryDirectory() as directory:
        arms = _arms(model, Path(directory))
        for arm in arms.values():
            arm(prompts if ON_GPU else prompts[:8])  # warm-up: allocations, kernels
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(2 if quick else 3):
            for name, arm in arms.items():
                seconds[name].append(_seconds(arm, prompts))
    middle = {name: median(times) for name, times in seconds.items()}
    figures = {"tokens_per_s": tokens / middle["ours"]}
    figures |= {f"ratio_vs_{name}": t / middle["ours"] for name, t in middle.items() if name not in ("ours", "matmul")}
    figures |= {"fraction_of_matmul": middle["matmul"] / middle["ours"], **_under_one_system_prompt(model, quick)}
    return figures | _memory(quick)


def _under_one_system_prompt(model: ChatModel, quick: bool) -> dict[str, float]:
    """Compare with the bare forward pass where all prompts begin with the same 200 tokens."""
    words = np.random.default_rng(1).choice(WORDS.split(), size=200)
    system = {"role": "system", "content": " ".join(words)}
    prompts = [
        Prompt(prompt.id, (system, *prompt.messages), "benign", "answer")
        for prompt in _prompts(16 if quick else 2048 if ON_GPU else 32, seed=0)
    ]
    bare, ratios = _over(model, lambda inputs: model.model(**inputs)), []
    with tempfile.TemporaryDirectory() as directory:
        ours = _ours(model, Path(directory))
        for _ in range(2 if quick else 3):
            ratios.append(_seconds(bare, prompts) / _seconds(ours, prompts))
    return {"ratio_vs_bare_forward_shared_prompt": median(ratios)}


def _prompts(count: int, seed: int) -> list[Prompt]:
    """Make prompts whose lengths in tokens, template included, are log-normal between 8 and 90."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(np.log(30), 0.6, size=count)), 8, 90).astype(int)
    texts = [
        " ".join(rng.choice(WORDS.split(), size=max(1, length - 6))) for length in lengths
    ]  # 6: the template's own tokens
    return [Prompt(str(i), ({"role": "user", "content": text},), "benign", "answer") for i, text in enumerate(texts)]


def _rendered(model: ChatModel, prompts: list[Prompt]) -> list[Rendered]:
    return [render(model.tokenizer, prompt) for prompt in prompts]


def _arms(model: ChatModel, directory: Path) -> dict[str, Arm]:
    arms = {
        "ours": _ours(model, directory),
        "bare_forward": _over(model, lambda inputs: model.model(**inputs)),
        "hidden_states": _over(
            model, lambda inputs: _last(model.model(**inputs, output_hidden_states=True).hidden_states[1:])
        ),
        "transformer_lens": _transformer_lens(model),
        "nnsight": _nnsight(model),
        "matmul": _matmul(model),
    }
    for name, build in (("nnterp", _nnterp), ("lmprobe", _lmprobe)):
        try:
            arms[name] = build(model)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return arms


def _ours(model: ChatModel, directory: Path) -> Arm:
    runs = iter(range(1000))
    dtype: Any = "bfloat16" if ON_GPU else "float32"

    def run(prompts: list[Prompt]) -> None:
        path = directory / str(next(runs)) / "activations.h5"
        extract(model, prompts, _rendered(model, prompts), path, CaptureSpec(positions=POSITIONS, store_dtype=dtype))

    return run


def _over(model: ChatModel, work: Callable[[dict[str, Tensor]], object]) -> Arm:
    """Run `work` on left-padded batches of 16, in file order."""

    def run(prompts: list[Prompt]) -> None:
        rows = _rendered(model, prompts)
        with torch.inference_mode():
            for start in range(0, len(rows), 16):
                batch = model.batch(rows[start : start + 16])
                work({"input_ids": batch.tokens, "attention_mask": batch.attention_mask})

    return run


def _last(streams: Sequence[Tensor]) -> list[Tensor]:
    return [stream[:, -4:].cpu() for stream in streams]


def _transformer_lens(model: ChatModel) -> Arm:
    bridge = booted_bridge(copy.deepcopy(model.model), model.tokenizer)
    names = [f"blocks.{layer}.hook_resid_post" for layer in range(model.n_layers)]

    def work(inputs: dict[str, Tensor]) -> None:
        _, cache = bridge.run_with_cache(
            inputs["input_ids"], attention_mask=inputs["attention_mask"], prepend_bos=False, names_filter=names
        )
        _last([cache[name] for name in names])

    return _over(model, work)


def _nnsight(model: ChatModel) -> Arm:
    import nnsight

    traced = nnsight.TransformersModel(model.model, tokenizer=model.tokenizer, task="text-generation")

    def work(inputs: dict[str, Tensor]) -> None:
        with traced.trace(inputs):
            streams = nnsight.save([layer.output for layer in traced.model.layers])
        _last(streams)

    return _over(model, work)


def _nnterp(model: ChatModel) -> Arm:
    import nnsight
    from nnterp import StandardizedTransformer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        standard = StandardizedTransformer(model.model, tokenizer=model.tokenizer, check_renaming=False)

    def work(inputs: dict[str, Tensor]) -> None:
        with standard.trace(inputs):
            streams = nnsight.save([standard.layers_output[layer] for layer in range(model.n_layers)])
        _last([stream[0] if isinstance(stream, tuple) else stream for stream in streams])

    return _over(model, work)


def _lmprobe(model: ChatModel) -> Arm:
    from lmprobe.backends import LocalBackend

    backend = LocalBackend("random", device=str(model.device), dtype=model.dtype)
    backend._model, backend._tokenizer = model.model, model.tokenizer  # else it would load the same weights again

    def run(prompts: list[Prompt]) -> None:
        texts = [row.text for row in _rendered(model, prompts)]
        for start in range(0, len(texts), 16):
            activations, _mask = backend.extract_batch(texts[start : start + 16], list(range(model.n_layers)))
            _last([activations])

    return run


def _matmul(model: ChatModel) -> Arm:
    """Multiply every real token by all weight matrices of the blocks, in batches of the size of ours."""
    piece = TOKENS_ON_GPU if ON_GPU else TOKENS_ON_CPU
    linears = [part for layer in decoder_layers(model.model) for part in layer.modules() if isinstance(part, nn.Linear)]
    inputs = {
        width: torch.randn(piece, width, dtype=model.dtype, device=model.device)
        for width in {part.in_features for part in linears}
    }

    def run(prompts: list[Prompt]) -> None:
        left = sum(len(row.token_ids) for row in _rendered(model, prompts))
        with torch.inference_mode():
            while left > 0:
                for part in linears:
                    nn.functional.linear(inputs[part.in_features][:left], part.weight)
                left -= piece

    return run


def _seconds(arm: Arm, prompts: list[Prompt]) -> float:
    started = time.perf_counter()
    arm(prompts)
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - started


# -- memory ------------------------------------------------------------------------------------------------------------


def _memory(quick: bool) -> dict[str, float]:
    few, many = (200, 1000) if quick else (1000, 20000)
    peaks = {count: call_in_subprocess(_peak, count) for count in (few, many)}
    per_prompt = (peaks[many] - peaks[few]) * 1024 / (many - few)
    return {"memory_few_mb": peaks[few], "memory_many_mb": peaks[many], "memory_kb_per_prompt": per_prompt}


def _peak(count: int) -> float:
    """Return the peak memory in MB of extracting `count` prompts, beyond the loaded model."""
    quiet_libraries()
    model = load_model(str(ORGANISM))
    warm = _prompts(64, seed=1)
    with tempfile.TemporaryDirectory() as directory:
        _extract_at(model, warm, Path(directory) / "warm" / "activations.h5")
        path = Path(directory) / "all" / "activations.h5"
        return peak_beyond_mb(lambda: _extract_at(model, _prompts(count, seed=2), path))


def _extract_at(model: ChatModel, prompts: list[Prompt], path: Path) -> None:
    extract(model, prompts, [render(model.tokenizer, prompt) for prompt in prompts], path)


if __name__ == "__main__":
    main("extraction", measure)
