"""Parity of answers: dials in vLLM against `steering` in transformers, in mixed batches.

    python -m benchmarks.in_vllm.parity MODEL eager|compiled [PROMPTS]

MODEL is an organism of the zoo, with dials along its planted directions, or `taught`: SmolLM2-135M with the shipped
adapter, with dials along difference-of-means directions of its own prompts. Every prompt is asked under six pairs of
thresholds and without dials. The last line of the output is JSON.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.in_vllm.opened import Answered, Job, gap, in_transformers, in_vllm, open_vllm, saved_dials
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.in_memory import capture_in_memory
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.prompts.prompt import Prompt, load_prompts
from extract.shipped import ROOT
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from serving.vllm_plugin.engine import checkpoint_of
from steering.dial import Dial, Kind

TAUGHT = ROOT / "organisms" / "taught" / "smollm2-natural"
PAIRS = ((0.5, 0.5), (0.1, 0.9), (0.9, 0.1), (0.02, 0.02), (0.98, 0.98), (0.3, 0.7))
MAX_TOKENS = {"taught": 24}
LABELS: dict[Kind, str] = {"normative": "harmful", "epistemic": "uncertain"}


def opened(name: str, n: int) -> tuple[ChatModel, list[Prompt], list[Dial]]:
    """Return a model in float32 on the CPU, n of its prompts and dials for it."""
    if name == "taught":
        model = load_model("smollm2-135m", adapter=str(TAUGHT), dtype="float32", device="cpu")
        prompts = load_prompts(TAUGHT / "prompts.jsonl")
        return model, _spread(prompts, n), fitted(model, _spread(prompts, 180))
    folder = ROOT / "organisms" / "zoo" / name
    model = load_model(str(folder), dtype="float32", device="cpu")
    return model, _spread(load_prompts(folder / "prompts.jsonl"), n), planted(folder)


def planted(folder: Path) -> list[Dial]:
    """Return dials along an organism's planted directions, read where they are written."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    locus = Locus(truth["site"], truth["layer"], truth["position"])
    return [
        _dial(cast(Kind, one["name"]), np.array(one["direction"]), one["mean_on"], one["mean_off"], locus)
        for one in truth["variables"]
        if one["name"] in LABELS
    ]


def fitted(model: ChatModel, prompts: Sequence[Prompt]) -> list[Dial]:
    """Return dials along difference-of-means directions of the prompts' labels; read at one layer, written above it."""
    read, write = (
        Locus("resid_post", model.n_layers // 2, "post_last"),
        Locus("resid_post", model.n_layers * 2 // 3, "post_last"),
    )
    rows = [render(model.tokenizer, prompt) for prompt in prompts]
    kept = capture_in_memory(
        model, prompts, rows, CaptureSpec(layers=(read.layer, write.layer), positions=("post_last",))
    )
    labels, found = np.array(kept.labels), list[Dial]()
    for kind, label in LABELS.items():
        vectors = []
        for locus in (read, write):
            X = kept.read(locus.layer, locus.position)
            on, off = X[labels == label], X[labels != label]
            unit = on.mean(axis=0) - off.mean(axis=0)
            unit /= np.linalg.norm(unit)
            vectors.append((unit, float((on @ unit).mean()), float((off @ unit).mean())))
        (reads, on_read, off_read), (writes, on_write, off_write) = vectors
        dial = _dial(kind, reads, on_read, off_read, read)
        found.append(replace(dial, write=Direction(kind, writes.astype(np.float32), write, on_write, off_write)))
    return found


def _dial(kind: Kind, vector: np.ndarray, on: float, off: float, locus: Locus) -> Dial:
    unit = (vector / np.linalg.norm(vector)).astype(np.float32)
    scale = 4.0 / abs(on - off)
    return Dial(
        kind,
        locus,
        LinearProbe(unit.astype(np.float64), -(on + off) / 2, 1.0),
        Platt(scale, 0.0),
        0.5,
        0.0,
        Direction(kind, unit, locus, on, off),
    )


def _spread(prompts: Sequence[Prompt], n: int) -> list[Prompt]:
    return list(islice(prompts[:: max(1, len(prompts) // n)], n))


def compare(
    model: ChatModel,
    dials: Sequence[Dial],
    rows: Sequence[Rendered],
    jobs: Sequence[Job],
    found: Sequence[Answered],
    expected: Sequence[Answered],
) -> dict[str, float]:
    """Return how many answers are the same, how far probabilities are off, and the gaps where answers first differ."""
    plain = {job.row: answer.tokens for job, answer in zip(jobs, expected, strict=True) if job.thresholds is None}
    gaps = [
        gap(model, dials, rows[job.row], job, expect.tokens[: _first(find.tokens, expect.tokens)])
        for job, find, expect in zip(jobs, found, expected, strict=True)
        if find.tokens != expect.tokens
    ]
    off = [
        abs(a - b)
        for find, expect in zip(found, expected, strict=True)
        if expect.probability is not None
        for a, b in zip(find.probability or (np.inf,), expect.probability, strict=False)
    ]
    return {
        "answers": len(jobs),
        "same": len(jobs) - len(gaps),
        "changed_by_dials": sum(plain[job.row] != expect.tokens for job, expect in zip(jobs, expected, strict=True)),
        "probability_error": max(off),
        "categories_same": sum(a.category == b.category for a, b in zip(found, expected, strict=True)),
        "largest_gap_at_a_difference": max(gaps, default=0.0),
    }


def _first(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def measure(name: str, mode: str, n: int) -> dict[str, float]:
    """Answer in vLLM and in transformers, and compare."""
    model, prompts, dials = opened(name, n)
    rows = [render(model.tokenizer, prompt) for prompt in prompts]
    jobs = [Job(i, {"normative": a, "epistemic": b}) for i in range(len(rows)) for a, b in PAIRS]
    jobs += [Job(i, None) for i in range(len(rows))]
    random.Random(0).shuffle(jobs)
    most = MAX_TOKENS.get(name, 12)
    with tempfile.TemporaryDirectory() as folder:
        path = saved_dials(dials, model, Path(folder))
        llm = open_vllm(checkpoint_of(model, adapted=name == "taught"), path, enforce_eager=mode == "eager")
        found = in_vllm(llm, dials, rows, jobs, most)
    return compare(model, dials, rows, jobs, found, in_transformers(model, dials, rows, jobs, most))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 300)))
