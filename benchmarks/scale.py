"""Extraction by several workers: Ray against plain processes, one worker against two and four, and the way to 64 GPUs.

Each arm extracts from one prompt file, every worker with one thread; Ray's workers write one store, plain processes a
store each. Its rate is that of the
shards that are finished within a window of five minutes (`--quick`: three seconds), which begins when there are three
shards for every worker; so the start is left out. Four workers are more than two cores can take. The memory of the
command itself (the driver) is measured with few and with many prompts, until three shards are finished.

The calculation takes what was measured here (bytes a prompt, what the file system writes, how many parts a driver gives
out, how fast prompts are rendered) and the speed of a data sheet's GPU on an 8B shape; it is no measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer

from benchmarks.shapes import ORGANISM
from benchmarks.table import main
from experiments.cluster.connection import OBJECTS, connected, import_ray
from experiments.pipeline.machine import A100
from extract.chat.render import render
from extract.prompts.prompt import load_prompts
from extract.shipped import ROOT

ROWS = 64  # prompts of a shard
WINDOW_S = {False: 300.0, True: 3.0}
PROMPTS = {False: 120_000, True: 5_000}  # more than any arm reaches
FEW_AND_MANY = {False: (10_000, 200_000), True: (1_000, 12_000)}  # prompts, for the driver's memory
COPIES = 8  # of its words, in each prompt: about 100 tokens
GPUS, MANY = 64, 10_000_000
PARAMETERS, TOKENS, USED = 8.0e9, 100, 0.5  # of the model; of a prompt; share of the data sheet's products that is used
BYTES_8B = 32 * 4 * 4096 * 2  # of a prompt: layers, positions, d_model, bfloat16
SHARD_BYTES = 256 * 2**20
Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Arm:
    """One way to run the workers."""

    workers: int
    ray: bool


ARMS = {"one": Arm(1, False), "processes": Arm(2, False), "ray": Arm(2, True), "ray_four": Arm(4, True)}


def measure(quick: bool) -> dict[str, float]:
    """Measure each arm, then calculate."""
    with tempfile.TemporaryDirectory() as folder, _cluster(max(arm.workers for arm in ARMS.values())) as address:
        prompts = _many_prompts(Path(folder), PROMPTS[quick])
        rates = {name: _rate(arm, prompts, Path(folder) / name, WINDOW_S[quick], address) for name, arm in ARMS.items()}
        figures = {f"prompts_per_s_{name}": rate for name, rate in rates.items()}
        figures |= {
            "overhead_ray": rates["processes"] / rates["ray"],
            "speedup_2_workers": rates["ray"] / rates["one"],
            "speedup_4_workers": rates["ray_four"] / rates["one"],
            "bytes_per_prompt": max(path.stat().st_size for path in _shards(Path(folder) / "one")) / ROWS,
        }
        figures |= _parts(Path(folder), prompts, quick, address)
        few, many = (driver_peak_mb(Path(folder) / str(n), n, address) for n in FEW_AND_MANY[quick])
        figures |= {"driver_mb_few": few, "driver_mb_many": many, "driver_growth": many / few}
    figures |= _calculated(figures)
    _print_calculation(figures)
    return figures


def driver_peak_mb(folder: Path, n: int, address: str) -> float:
    """Return the largest memory of a command with one Ray worker, until three shards of n prompts are finished."""
    folder.mkdir()
    with _running(Arm(1, ray=True), _many_prompts(folder, n), folder / "run", address) as processes:
        _when_finished(folder / "run", 3, processes)
        status = Path(f"/proc/{processes[0].pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _many_prompts(folder: Path, n: int) -> Path:
    """Write a prompt file with numbered copies of the organism's prompts."""
    own = [json.loads(line) for line in (ORGANISM / "prompts.jsonl").read_text(encoding="utf-8").splitlines()]
    path = folder / "prompts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for i in range(n):
            row = own[i % len(own)]
            numbered = {"id": f"{row['id']}-{i}", "pair": f"{row['pair']}-{i // len(own)}"}
            file.write(json.dumps(row | numbered | {"text": " ".join([row["text"]] * COPIES)}) + "\n")
    return path


def _rate(arm: Arm, prompts: Path, out: Path, window: float, address: str) -> float:
    """Return the prompts a second in shards that are finished within a window, the start left out."""
    with _running(arm, prompts, out, address) as processes:
        begun = _when_finished(out, 3 * arm.workers, processes)
        began = time.monotonic()
        time.sleep(window)
        done = _when_finished(out, begun + 1, processes)  # a loaded machine may finish none within a short window
        seconds = time.monotonic() - began
        if not _alive(processes):
            raise SystemExit(f"{arm} ended within its window: more prompts are needed")
    return (done - begun) * ROWS / seconds


@contextmanager
def _running(arm: Arm, prompts: Path, out: Path, address: str) -> Iterator[list[Process]]:
    """Yield the processes of an arm, which are ended at the end."""
    settings = [f"prompts.path={prompts}", f"extract.rows_per_shard={ROWS}"]
    words = [sys.executable, "-m", "refusal", "extract", "configs/quickstart.yaml", "--quiet"]
    words += [word for setting in settings for word in ("--set", setting)]
    more = ["--ray", address, "--workers", str(arm.workers)] if arm.ray else []
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [*words, "--out", str(out / str(number)), *more],
            cwd=ROOT,
            env=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for number in range(1 if arm.ray else arm.workers)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def _alive(processes: Sequence[Process]) -> bool:
    for process in processes:
        if process.poll() is not None and process.returncode and process.stderr:
            raise SystemExit(process.stderr.read().decode()[-2000:])
    return all(process.poll() is None for process in processes)


@contextmanager
def _cluster(workers: int) -> Iterator[str]:
    """Run Ray with one processor for every worker, whatever the machine has; yield its address."""
    import_ray()
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": workers, "object_store_memory": OBJECTS})
    try:
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def _when_finished(out: Path, n: int, processes: Sequence[Process]) -> int:
    """Wait until n shards are finished; return how many are."""
    while (done := _finished(out)) < n:
        if not _alive(processes):
            raise SystemExit("an arm ended before its window: more prompts are needed")
        time.sleep(0.2)
    return done


def _shards(out: Path) -> list[Path]:
    return list(out.glob("*/activations.h5.shards/*.h5"))


def _finished(out: Path) -> int:
    return len(_shards(out))


def _parts(folder: Path, prompts: Path, quick: bool, address: str) -> dict[str, float]:
    """Measure what the calculation needs: writing, giving out parts, rendering."""
    rows = load_prompts(prompts)[: 500 if quick else 5000]
    tokenizer = AutoTokenizer.from_pretrained(ORGANISM)
    began = time.perf_counter()
    for row in rows:
        render(tokenizer, row)
    rendered = len(rows) / (time.perf_counter() - began)
    return {
        "written_mb_per_s": _writing(folder / "written", (64 if quick else 1024) << 20) / 2**20,
        "parts_per_s": _giving_out(200 if quick else 4000, address),
        "rendered_per_s": rendered,
    }


def _writing(path: Path, n_bytes: int) -> float:
    """Return the bytes a second of one writer, until they are on the disk."""
    piece = os.urandom(1 << 20)
    began = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(n_bytes >> 20):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return n_bytes / (time.perf_counter() - began)


class Idle:
    """A worker that does nothing."""

    def shard(self, number: int) -> bool:
        """Return at once."""
        return True


def _giving_out(n: int, address: str) -> float:
    """Return the parts a second that a driver gives out and takes back, two at a time to each of two workers."""
    with connected(address) as cluster:
        ray = cluster.ray
        actors = [ray.remote(Idle).options(num_cpus=0, max_concurrency=2).remote() for _ in range(2)]
        ray.get([actor.shard.remote(0) for actor in actors])
        began, waiting, out = time.perf_counter(), list(range(n)), dict[object, object]()
        while waiting or out:
            for actor in actors:
                while waiting and sum(one is actor for one in out.values()) < 2:
                    out[actor.shard.remote(waiting.pop())] = actor
            for reference in ray.wait(list(out), num_returns=1)[0]:
                ray.get(reference)
                del out[reference]
        return n / (time.perf_counter() - began)


def _calculated(measured: Mapping[str, float]) -> dict[str, float]:
    """Return what 64 GPUs would reach with an 8B model, and which worker counts fill the file system and the driver."""
    worker = USED * A100.flops / (2 * PARAMETERS * TOKENS)  # prompts a second
    rows = SHARD_BYTES / BYTES_8B
    hours = MANY / (GPUS * worker) / 3600
    return {
        "gpu_prompts_per_s": worker,
        "gpus_that_fill_the_file_system": measured["written_mb_per_s"] * 2**20 / (worker * BYTES_8B),
        "gpus_that_fill_the_driver": measured["parts_per_s"] * rows / worker,
        "hours_of_64_gpus": hours,
        "hours_of_the_start": MANY / measured["rendered_per_s"] / 3600,
        "terabytes": MANY * BYTES_8B / 1e12,
    }


def _print_calculation(figures: Mapping[str, float]) -> None:
    print(f"""
{MANY:,} prompts of {TOKENS} tokens, an 8B model, four positions at 32 layers in bfloat16, {GPUS} GPUs (calculated):
  extraction {figures["hours_of_64_gpus"]:.1f} hours at {figures["gpu_prompts_per_s"]:.0f} prompts/s a GPU, \
{figures["terabytes"]:.1f} TB
  each worker renders all prompts first: {figures["hours_of_the_start"]:.1f} hours at {figures["rendered_per_s"]:.0f}/s
  one writer's file system ({figures["written_mb_per_s"]:.0f} MB/s) is full at \
{figures["gpus_that_fill_the_file_system"]:.1f} GPUs, the driver ({figures["parts_per_s"]:.0f} parts/s) at \
{figures["gpus_that_fill_the_driver"]:.0f}
""")


if __name__ == "__main__":
    main("scale", measure)
