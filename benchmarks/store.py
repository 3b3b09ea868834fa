"""Time to read one locus from a store of 107 shards, 32 prompts each, d_model 128 and 896; every byte is verified.

The store is made of random numbers in a temporary directory and stays in the page cache. Each figure is the median of
60 reads of changing loci: by the clock, and as processor time, which other processes on the machine hardly affect.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.table import main
from extract.chat.render import Rendered
from extract.prompts.prompt import Prompt, prompts_hash
from extract.store.activation_store import ActivationStore
from extract.store.identity import Identity, StoreType
from extract.store.shards import CapturedShard, ShardFiles
from extract.store.writer import finish, writing

SHARDS, ROWS = 107, 32
LAYERS, POSITIONS = (0, 1, 2), ("inst_last", "post_last")


def measure(quick: bool) -> dict[str, float]:
    """Return milliseconds per locus in float32 (d_model 128) and float16 (d_model 896)."""
    shards, reads = (3, 6) if quick else (SHARDS, 60)
    figures: dict[str, float] = {}
    stores: tuple[tuple[int, StoreType], ...] = ((128, "float32"), (896, "float16"))
    for d_model, dtype in stores:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "activations.h5"
            _make(path, shards, d_model, dtype)
            clock, processor = _read(path, reads)
        figures |= {f"ms_per_locus_{d_model}": clock, f"processor_ms_per_locus_{d_model}": processor}
    return figures


def _make(path: Path, shards: int, d_model: int, dtype: StoreType) -> None:
    n = shards * ROWS
    prompts = [Prompt(f"id-{i}", ({"role": "user", "content": "x"},), "benign", "answer") for i in range(n)]
    rendered = [Rendered("", (1, 2), {"inst_last": (0,), "post_last": (1,)}, False) for _ in prompts]
    identity = Identity(
        model="m",
        revision="r",
        weights="w",
        tokenizer="t",
        template="c",
        prompts=prompts_hash(prompts),
        tokens="k",
        site="resid_post",
        layers=LAYERS,
        positions=POSITIONS,
        dtype=dtype,
        backend="hooks",
        rows_per_shard=ROWS,
    )
    present = np.ones((len(POSITIONS), ROWS), dtype=bool)
    with writing(ShardFiles(path, identity, n, d_model)) as files:
        for shard in range(shards):
            files.write(shard, CapturedShard(torch.randn(len(LAYERS), len(POSITIONS), ROWS, d_model), present))
        finish(files, prompts, rendered, {})


def _read(path: Path, reads: int) -> tuple[float, float]:
    clock, processor = [], []
    with ActivationStore(path) as store:
        for k in range(reads):
            before = time.perf_counter(), time.process_time()
            store.read(LAYERS[k % 3], POSITIONS[k % 2])
            clock.append(time.perf_counter() - before[0])
            processor.append(time.process_time() - before[1])
    return 1e3 * statistics.median(clock), 1e3 * statistics.median(processor)


if __name__ == "__main__":
    main("store", measure)
