"""What two dials cost while decoding: time under both, over time of plain generation, interleaved in one run.

Keys: `overhead_batch1`, `overhead_batch8` (1.0 is free). The model is randomly initialised: only its shape matters.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.table import main
from experiments.config import ROOT
from extract.chat import Rendered, render
from extract.model import ChatModel
from extract.prompts import Prompt
from probes.direction import Direction, Locus
from probes.logistic import LinearProbe, Platt
from steering.controller import steering
from steering.dial import Dial, Kind

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def measure(quick: bool) -> dict[str, float]:
    """Time generation with and without the dials; the median ratio over interleaved rounds."""
    model = _model(quick, ORGANISM)
    dials = [_dial(model, kind) for kind in ("normative", "epistemic")]
    rows = _rows(model)
    new_tokens, rounds = (8, 2) if quick else (32, 5)
    return {f"overhead_batch{size}": _ratio(model, dials, rows[:size], new_tokens, rounds) for size in (1, 8)}


def _model(quick: bool, tokenizer: Path) -> ChatModel:
    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 128} if quick else {
        "hidden_size": 896, "num_hidden_layers": 12, "intermediate_size": 4864,
    }  # fmt: skip
    words = AutoTokenizer.from_pretrained(tokenizer)
    shape = LlamaConfig(vocab_size=len(words), num_attention_heads=8, num_key_value_heads=2, **size)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return ChatModel(LlamaForCausalLM(shape).to(device), words, name="random")


def _dial(model: ChatModel, kind: Kind) -> Dial:
    rng = np.random.default_rng(0 if kind == "normative" else 1)
    vector = rng.standard_normal(model.d_model).astype(np.float32)
    vector /= np.linalg.norm(vector)
    locus = Locus("resid_post", model.n_layers // 2, "post_last")
    write = Direction(f"{kind}_write", vector, locus, 1.0, -1.0)
    return Dial(kind, locus, LinearProbe(vector.astype(float), 0.0, 1.0), Platt(1.0, 0.0), 0.5, 0.0, write)


def _rows(model: ChatModel) -> list[Rendered]:
    texts = [
        f"how do i {verb} the engine at home?"
        for verb in ("move", "clean", "fix", "open", "hide", "lock", "lift", "push")
    ]
    prompts = [Prompt(str(i), ({"role": "user", "content": t},), "benign", "answer") for i, t in enumerate(texts)]
    return [render(model.tokenizer, prompt) for prompt in prompts]


def _ratio(model: ChatModel, dials: list[Dial], rows: list[Rendered], new_tokens: int, rounds: int) -> float:
    batch = model.batch(rows)

    def plain() -> None:
        model.generate(batch, new_tokens, min_new_tokens=new_tokens)

    def dialled() -> None:
        with steering(model, dials, batch, rows):
            model.generate(batch, new_tokens, min_new_tokens=new_tokens)

    plain()
    dialled()
    return float(np.median([_seconds(dialled) / _seconds(plain) for _ in range(rounds)]))


def _seconds(work: object) -> float:
    started = time.perf_counter()
    work()  # type: ignore[operator]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main("steering", measure)
