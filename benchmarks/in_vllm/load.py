"""Many clients at once: vLLM with dials beside our own engine, through the same routes and the real `openai` client.

    python -m benchmarks.in_vllm.load [--quick]

64 clients ask the taught SmolLM2-135M (with `--quick` 8 and two-knobs) for a minute (3 seconds; our own engine half of
that), streaming or not, with random thresholds; one of eight leaves early. Each whole answer must be the one that
`steering` gives to its prompt and thresholds; the benchmark fails where more than one of 200 is not.
`ratio_vllm_vs_transformers` is that of finished answers a second, each engine with `refusal serve`'s routes on the same
machine, one after the other, with a thread a core; vLLM eager, in float32. Memory is that of a server's processes after
a warm-up, in which vLLM uses each of its 72 blocks of keys and values once, and at the end. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import openai

from benchmarks.in_vllm.opened import Job, in_transformers, saved_dials
from benchmarks.in_vllm.parity import PAIRS, TAUGHT, opened
from extract.chat.render import render
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT

MAX_TOKENS = 24


@dataclass
class Seen:
    """What the clients saw."""

    answers: list[tuple[int, int, str]] = field(default_factory=list)  # prompt, pair of thresholds, text
    left: int = 0
    errors: list[str] = field(default_factory=list)


def measure(quick: bool) -> dict[str, float]:
    """Serve with either engine under the same load; return throughputs, wrong answers and the growth of memory."""
    name, clients, seconds = ("two-knobs", 8, 3.0) if quick else ("taught", 64, 60.0)
    model, prompts, dials = opened(name, 24)
    given = [str(ROOT / "organisms" / "zoo" / name)] if quick else ["smollm2-135m", "--adapter", str(TAUGHT)]
    rows = [render(model.tokenizer, prompt) for prompt in prompts]
    jobs = [Job(i, {"normative": a, "epistemic": b}) for i in range(len(rows)) for a, b in PAIRS]
    expected = [model.decode(list(one.tokens)).strip() for one in in_transformers(model, dials, rows, jobs, MAX_TOKENS)]
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        given += ["--dials", str(saved_dials(dials, model, Path(folder))), "--max-queue", "256", "--name", "m"]
        small = ["--engine-arg", "enforce_eager=true", "--engine-arg", "num_gpu_blocks_override=72"]
        for engine, more, lasts in (("vllm", small, seconds), ("transformers", [], seconds / 2)):
            with _serving([*given, "--engine", engine, "--max-batch", "64", *more]) as (url, process):
                _load(url, prompts, clients, lasts / 3)  # a warm-up
                before = _memory(process)
                seen = _load(url, prompts, clients, lasts)
                after = _memory(process)
            if seen.errors:
                raise SystemExit(f"{engine}: {len(seen.errors)} errors, the first: {seen.errors[0]}")
            wrong = sum(text != expected[i * len(PAIRS) + pair] for i, pair, text in seen.answers)
            if wrong > len(seen.answers) / 200:
                raise SystemExit(f"{engine}: {wrong} of {len(seen.answers)} answers are not those of steering")
            figures |= {
                f"answers_per_s_{engine}": len(seen.answers) / lasts,
                f"answers_{engine}": len(seen.answers),
                f"wrong_{engine}": wrong,
                f"left_{engine}": seen.left,
                f"memory_growth_mb_{engine}": (after - before) / 2**20,
            }
    figures["ratio_vllm_vs_transformers"] = figures["answers_per_s_vllm"] / figures["answers_per_s_transformers"]
    return figures


@contextmanager
def _serving(given: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = random.randrange(20_000, 30_000)
    words = [sys.executable, "-m", "refusal", "serve", *given, "--port", str(port)]
    # vLLM leaves a core to its other processes unless it is told otherwise
    both = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}"}
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | both)
    try:
        for _ in range(1200):
            if process.poll() is not None:
                raise SystemExit("the server ended")
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except OSError:
                time.sleep(0.25)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.terminate()
        process.wait(60)


def _memory(process: subprocess.Popen[bytes]) -> int:
    """Return the bytes in memory of a server and all its processes, which share little."""
    import psutil

    parent = psutil.Process(process.pid)
    return sum(one.memory_info().rss for one in (parent, *parent.children(recursive=True)))


def _load(url: str, prompts: Sequence[Prompt], clients: int, seconds: float) -> Seen:
    seen, ends = Seen(), time.monotonic() + seconds
    threads = [threading.Thread(target=_client, args=(url, prompts, i, ends, seen)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def _client(url: str, prompts: Sequence[Prompt], seed: int, ends: float, seen: Seen) -> None:
    rng, client = random.Random(seed), openai.OpenAI(base_url=url, api_key="any", max_retries=0, timeout=120)
    while time.monotonic() < ends:
        i, pair, stream = rng.randrange(len(prompts)), rng.randrange(len(PAIRS)), rng.random() < 0.5
        body = dict(zip(("normative_threshold", "epistemic_threshold"), PAIRS[pair], strict=True))
        asked: dict[str, Any] = {
            "model": "m",
            "messages": list(prompts[i].messages),
            "max_tokens": MAX_TOKENS,
            "extra_body": body,
        }
        try:
            if not stream:
                text = client.chat.completions.create(**asked).choices[0].message.content
            elif rng.random() < 0.25:
                with client.chat.completions.create(**asked, stream=True) as pieces:
                    next(iter(pieces))
                seen.left += 1
                continue
            else:
                with client.chat.completions.create(**asked, stream=True) as pieces:
                    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        except openai.OpenAIError as error:
            seen.errors.append(repr(error))
            continue
        if time.monotonic() < ends:
            seen.answers.append((i, pair, (text or "").strip()))


if __name__ == "__main__":
    print(json.dumps(measure("--quick" in sys.argv)))
