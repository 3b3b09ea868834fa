"""What dials cost a decoded token in vLLM: with every row gated, and with the plugin loaded and no row gated.

    python -m benchmarks.in_vllm.overhead [--quick | --short] [--categories]

The taught SmolLM2-135M (with `--quick` the organism two-knobs), 32 rows, float32, eager, so that the dials can be taken
out of the same process; of two neighbouring steps of the same requests one is without the plugin, by chance the first
or the second. A step's time is processor time of one thread; each figure is the upper bound of the 95 % interval of the
median ratio: of 450 pairs, with `--short` (as `make test-vllm` runs it) of 75, whose interval is wider than what is
measured. With `--categories` the thresholds of gated rows are those of eight random categories. The last line of the
output is JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.decoding.lockstep import ratio_interval
from benchmarks.in_vllm.opened import given, open_vllm, saved_dials
from benchmarks.in_vllm.parity import Job, opened
from extract.chat.render import Rendered, render
from serving.vllm_plugin.engine import checkpoint_of
from serving.vllm_plugin.request import new_key
from steering.dial import CategoryRead, CategoryThresholds, Dial

ROWS, N_CATEGORIES = 32, 8
ARMS = ("control", "idle", "gated")


def measure(quick: bool, short: bool, categories: bool = False) -> dict[str, float]:
    """Decode the same rows in all arms; return the ratios of neighbouring steps with and without the plugin."""
    name, rounds = ("two-knobs", 1) if quick else ("taught", 1 if short else 6)
    steps = 16 if quick else 150
    model, prompts, dials = opened(name, ROWS)
    rows = [render(model.tokenizer, prompt) for prompt in prompts]
    if categories:
        dials = _by_category(dials)
    with tempfile.TemporaryDirectory() as folder:
        path = saved_dials(dials, model, Path(folder))
        llm = open_vllm(
            checkpoint_of(model, adapted=name == "taught"), path, enforce_eager=True, enable_prefix_caching=False
        )
        placed, rng = llm.collective_rpc("refusal_placed")[0], random.Random(0)
        _decode(llm, placed, dials, rows, "gated", 16, rng)  # a warm-up
        times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
        for arm in ARMS * rounds:
            times[arm] += _decode(llm, placed, dials, rows, arm, steps, rng)
    figures = {"ms_per_step": 1e3 * float(np.median([without for _, without in times["control"]]))}
    for arm in ARMS:
        ratio = ratio_interval(*np.array(times[arm]).T)
        figures |= {f"overhead_{arm}": ratio.high, f"overhead_{arm}_median": ratio.estimate}
    return figures


def _by_category(dials: Sequence[Dial]) -> list[Dial]:
    """Give dials thresholds for random categories, read where the first dial reads; every prompt is recognised."""
    assert dials[0].read is not None
    assert dials[0].probe is not None
    names = tuple(f"category {i}" for i in range(N_CATEGORIES))
    weight = np.random.default_rng(0).normal(size=(N_CATEGORIES, len(dials[0].probe.weight)))
    read = CategoryRead(names, dials[0].read, weight, np.zeros(N_CATEGORIES), 0.0)
    thresholds = dict(zip(names, np.linspace(0.2, 0.8, N_CATEGORIES).tolist(), strict=True))
    return [replace(dial, by_category=CategoryThresholds(read, thresholds)) for dial in dials]


def _decode(
    llm: Any, placed: Any, dials: Sequence[Dial], rows: Sequence[Rendered], arm: str, steps: int, rng: random.Random
) -> list[tuple[float, float]]:
    """Return the processor seconds of neighbouring steps after the prompts, of all rows together: with, and without.

    In the control arm both are without. Leaving the plugin out of every other step changes what is said, not how much.
    """
    from vllm import SamplingParams
    from vllm.inputs.engine import tokens_input

    engine = llm.llm_engine
    for i, row in enumerate(rows):
        key = new_key()
        asked = {dial.kind: 0.5 for dial in dials if dial.by_category is None}
        job = Job(i, asked if arm == "gated" else None)
        params = SamplingParams(
            temperature=0,
            max_tokens=steps + 2,
            ignore_eos=True,
            detokenize=False,
            extra_args=given(key, job, dials, rows),
        )
        engine.add_request(key, tokens_input(list(row.token_ids)), params)
    while len(engine.step()) < len(rows):  # some prompts are still read
        pass
    pairs = []
    for _ in range(steps // 2):
        found = [0.0, 0.0]
        for without in rng.sample((0, 1), 2):
            with placed.taken_out() if without or arm == "control" else nullcontext():
                began = time.process_time()
                engine.step()
                found[without] = time.process_time() - began
        pairs.append((found[0], found[1]))
    while engine.has_unfinished_requests():
        engine.step()
    # the model runner hears with the next step which requests have ended
    llm.generate([tokens_input([1])], SamplingParams(max_tokens=1, detokenize=False), use_tqdm=False)
    return pairs


if __name__ == "__main__":
    print(json.dumps(measure(*(f"--{name}" in sys.argv for name in ("quick", "short", "categories")))))
