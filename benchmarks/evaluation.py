"""`refusal eval` against an endpoint of this machine: answers a second, and the memory of the command.

20,000 prompts (`--quick`: 400) of about ten words; the server answers each with one sentence, at once. The rate is that
of the asking, from the first request to the last; judging and scoring come after it. Memory is the command's, when a
tenth of the prompts and when all are answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.table import main
from extract.shipped import ROOT
from tests.support.chat_server import Answer, Asked, running

PROMPTS = {False: 20_000, True: 400}
CONCURRENCY = 16


def measure(quick: bool) -> dict[str, float]:
    """Run the command once; return its rate and its memory."""
    n, times = PROMPTS[quick], list[float]()  # of each request

    def answer(_asked: Asked) -> Answer:
        times.append(time.perf_counter())
        return Answer("Sure: take it to the garden and wait.")

    with tempfile.TemporaryDirectory() as folder, running() as server:
        server.answers = answer
        command = f"-m refusal eval m --json --base-url {server.url} --concurrency {CONCURRENCY} --suite".split()
        command = [sys.executable, *command, str(_suite(Path(folder), n)), "--out", str(Path(folder) / "out")]
        started = time.perf_counter()
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ | {"HF_HUB_OFFLINE": "1"}
        ) as run:
            early, late = _memory(run, times, n)
            assert run.stdout is not None
            found = json.loads(run.stdout.read())
        if (found["answered"], len(times)) != (n, n):
            raise SystemExit(f"{found['answered']} of {n} prompts are answered, by {len(times)} requests")
        return {
            "answers_per_s": (n - 1) / (max(times) - min(times)),
            "seconds_in_all": time.perf_counter() - started,
            "memory_early_mb": early,
            "memory_late_mb": late,
            "memory_growth": late / early,
        }


def _memory(run: subprocess.Popen[bytes], times: list[float], n: int) -> tuple[float, float]:
    """Return the command's megabytes when a tenth of the prompts and when nearly all are answered."""
    process, found = psutil.Process(run.pid), list[float]()
    for wanted in (n // 10, n - CONCURRENCY):
        while len(times) < wanted:
            if run.poll() is not None:
                raise SystemExit("the command ended early")
            time.sleep(0.01)
        found.append(process.memory_info().rss / 2**20)
    return found[0], found[1]


def _suite(folder: Path, n: int) -> Path:
    labels = ("benign", "harmful", "uncertain")
    with (folder / "prompts.jsonl").open("w") as file:
        for i in range(n):
            text = f"what should one know about item {i} before it is taken to the garden?"
            file.write(json.dumps({"id": str(i), "text": text, "label": labels[i % 3]}) + "\n")
    (folder / "suite.yaml").write_text(f"path: {folder / 'prompts.jsonl'}\n")
    return folder / "suite.yaml"


if __name__ == "__main__":
    main("evaluation", measure)
