"""Batches within a budget, and recovery from real out-of-memory errors under a limit of the operating system."""

import subprocess
import sys
import textwrap

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from extract.backoff import TokenBudget, length_sorted
from extract.shipped import ROOT
from tests.support.one_line import refused


@given(st.lists(st.integers(1, 90), min_size=1, max_size=60), st.integers(1, 500))
def test_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = length_sorted(range(len(lengths)), lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget
    ran = [lengths[row] for batch in batches for row in batch]
    assert ran == sorted(ran)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(30, 200))
def test_out_of_memory_halves_the_budget_and_every_row_is_done_once(lengths: list[int], capacity: int) -> None:
    done: list[int] = []
    notes: list[str] = []

    def work(rows: list[int]) -> None:
        if len(rows) * max(lengths[row] for row in rows) > capacity:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        done.extend(rows)

    budget = TokenBudget(10_000, notes.append)
    budget.run(lengths, work)
    assert sorted(done) == list(range(len(lengths)))
    too_many = len(lengths) * max(lengths) > capacity
    assert bool(notes) == too_many
    assert (budget.tokens < 10_000) == too_many
    before = len(notes)
    budget.run(lengths, work)  # the next shard starts with what fitted
    assert len(notes) == before


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you "
                     "tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17.99 GB, other allocations: 1.04 MB)"),
        torch.OutOfMemoryError("Allocation on device"),
        torch.cuda.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB"),
    ],
)  # fmt: skip
def test_every_way_of_saying_so_is_understood(error: Exception) -> None:
    done: list[int] = []
    notes: list[str] = []

    def work(rows: list[int]) -> None:
        if len(rows) > 3:
            raise error
        done.extend(rows)

    TokenBudget(100, notes.append).run([5] * 10, work)
    assert sorted(done) == list(range(10))
    assert notes == ["out of memory with 10 prompts at once; continuing with 25 tokens per batch",
                    "out of memory with 5 prompts at once; continuing with 12 tokens per batch"]  # fmt: skip


def test_one_prompt_that_does_not_fit_is_an_error() -> None:
    def work(_rows: list[int]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    refused("out of memory on one prompt of 3 tokens", TokenBudget(100).run, [7, 3], work)  # the shorter is tried first


def test_other_errors_come_through() -> None:
    def work(_rows: list[int]) -> None:
        raise RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")

    with pytest.raises(RuntimeError, match="must match"):
        TokenBudget(100).run([7, 3], work)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on address space is Linux's")
def test_a_real_allocation_that_fails_is_survived() -> None:
    """Squares of up to 1.6 GB are asked for under a limit 700 MB above what the process already has."""
    script = textwrap.dedent("""
        import resource, torch
        from pathlib import Path
        from extract.backoff import TokenBudget
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 700 * 2**20, size + 700 * 2**20))
        done, notes = [], []
        def work(rows):
            torch.ones(len(rows) * 1000, 10_000)  # 40 MB a row
            done.extend(rows)
        TokenBudget(40, notes.append).run([1] * 40, work)
        print(sorted(done) == list(range(40)), len(notes))
    """)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    right, times = done.stdout.split()
    assert right == "True"
    assert int(times) >= 1
