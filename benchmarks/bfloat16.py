"""What bfloat16 on a CPU costs and saves (`--set model.dtype=bfloat16`), against float32 on the same prompts.

The model is the real one of configs/real.yaml (with `--quick`, or where smollm2-135m is not fetched, the organism
two-knobs), prompts are its own. Streams of the last prompt token at all layers are captured with both, in turns.
`stream_error_…` is |x - y| / |x| of a prompt's stream; `least_direction_cosine` compares difference-of-means directions
of harmful and of uncertain against benign prompts, fitted on every other prompt; `largest_auroc_change` is of their
projections on the other prompts, each direction with its own dtype's streams.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.shapes import ORGANISM
from benchmarks.table import main
from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.in_memory import capture_in_memory
from extract.model.known_models import known_models
from extract.model.loading import load_model
from extract.prompts.prompt import Prompt, load_prompts
from extract.shipped import ROOT
from probes.statistics.metrics import auroc

TAUGHT = ROOT / "organisms" / "taught" / "smollm2-natural"
ROUNDS = 3
POSITION = "post_last"


def measure(quick: bool) -> dict[str, float]:
    """Capture with both dtypes in turns; return the speed and the errors."""
    real = not quick and known_models()["smollm2-135m"].path.is_file()
    name, adapter, folder = ("smollm2-135m", str(TAUGHT), TAUGHT) if real else (str(ORGANISM), None, ORGANISM)
    prompts = _some(folder / "prompts.jsonl", 20 if quick else 120)
    models: dict[str, Any] = {
        dtype: load_model(name, adapter=adapter, dtype=dtype, device="cpu") for dtype in ("float32", "bfloat16")
    }
    streams: dict[str, np.ndarray] = {}
    seconds: dict[str, list[float]] = {dtype: [] for dtype in models}
    for _ in range(1 + (1 if quick else ROUNDS)):  # the first is a warm-up
        for dtype, model in models.items():
            began = time.perf_counter()
            rows = [render(model.tokenizer, prompt) for prompt in prompts]
            streams[dtype] = capture_in_memory(model, prompts, rows, CaptureSpec(positions=(POSITION,))).values[:, 0]
            seconds[dtype].append(time.perf_counter() - began)
    exact, rounded = streams["float32"], streams["bfloat16"]
    errors = np.linalg.norm(rounded - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
    compared = list(_compared(exact, rounded, np.array([prompt.label for prompt in prompts])))
    return {
        "speed_vs_float32": median(seconds["float32"][1:]) / median(seconds["bfloat16"][1:]),
        "stream_error_median": float(np.median(errors)),
        "stream_error_largest": float(errors.max()),
        "least_direction_cosine": min(cosine for cosine, _ in compared),
        "largest_auroc_change": max(change for _, change in compared),
    }


def _some(path: Path, n: int) -> list[Prompt]:
    """Return the first n prompts of each label."""
    prompts = load_prompts(path)
    return [
        prompt
        for label in ("benign", "harmful", "uncertain")
        for prompt in [one for one in prompts if one.label == label][:n]
    ]


def _compared(exact: np.ndarray, rounded: np.ndarray, labels: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yield the cosine of both dtypes' directions and the change of AUROC, by layer and label."""
    fitted = np.arange(len(labels)) % 2 == 0
    for layer in range(len(exact)):
        for label in ("harmful", "uncertain"):
            inside, held = (np.isin(labels, [label, "benign"]) & half for half in (fitted, ~fitted))
            found = [_direction(X[layer], labels == label, inside) for X in (exact, rounded)]
            areas = [
                auroc(labels[held] == label, X[layer][held] @ direction)
                for X, direction in zip((exact, rounded), found, strict=True)
            ]
            yield float(found[0] @ found[1]), abs(areas[0] - areas[1])


def _direction(X: np.ndarray, positive: np.ndarray, inside: np.ndarray) -> np.ndarray:
    difference = X[inside & positive].mean(axis=0) - X[inside & ~positive].mean(axis=0)
    return np.asarray(difference / np.linalg.norm(difference))


if __name__ == "__main__":
    main("bfloat16", measure)
