"""Batches within a token budget, which is halved when the device runs out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from extract.errors import UserError

T = TypeVar("T")
NO_FLOAT64 = {"mps"}  # types of devices
TOKENS_ON_CPU, TOKENS_ON_GPU = 1024, 16384  # the smallest batches at which matrix products run at their full rate


@dataclass
class TokenBudget:
    """The most tokens in a batch, padding included (or prompts); a size that did not fit is not tried again."""

    tokens: int
    say: Callable[[str], None] = lambda line: None
    unit: Literal["tokens", "prompts"] = "tokens"

    @classmethod
    def on(cls, device: torch.device, tokens: int | None, say: Callable[[str], None]) -> TokenBudget:
        """Return the budget of passes that only read; None: the usual one of the device."""
        return cls(tokens or (TOKENS_ON_GPU if device.type == "cuda" else TOKENS_ON_CPU), say)

    def run(self, lengths: Sequence[int], work: Callable[[list[int]], None]) -> None:
        """Call `work(rows)` for batches of rows of similar length; one that runs out of memory is split in halves."""
        waiting = length_sorted(range(len(lengths)), lengths, self.tokens)
        while waiting:
            rows = waiting.pop(0)
            if self._fits(work, rows):
                continue
            used = len(rows) * max(lengths[row] for row in rows)
            if len(rows) == 1:
                remedy = "use a smaller model or dtype, more memory, or shorter prompts"
                if self.unit == "tokens":
                    raise UserError(f"out of memory on one prompt of {used} tokens; {remedy}")
                raise UserError(f"out of memory while generating for a single prompt; {remedy} or responses")
            self.tokens = max(1, used // 2)
            unit = self.unit if self.tokens > 1 else self.unit[:-1]
            self.say(f"out of memory with {len(rows)} prompts at once; continuing with {self.tokens} {unit} per batch")
            left = [*rows, *(row for batch in waiting for row in batch)]
            waiting = length_sorted(left, lengths, self.tokens)

    def map(self, lengths: Sequence[int], work: Callable[[list[int]], Iterable[T]]) -> list[T]:
        """Return the results of all rows in order; `work(rows)` returns those of a batch."""
        results: dict[int, T] = {}
        self.run(lengths, lambda rows: results.update(zip(rows, work(rows), strict=True)))
        return [results[row] for row in range(len(lengths))]

    def _fits(self, work: Callable[[list[int]], None], rows: list[int]) -> bool:
        try:
            work(rows)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            return True
        empty_cache()  # outside the handler, because its traceback holds the tensors of the failed pass
        return False


def widened(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, in float32 on a device that has no wider numbers."""
    return tensor.float() if tensor.device.type in NO_FLOAT64 else tensor.double()


def empty_cache() -> None:
    """Give the unused memory of the GPU, or of an Apple chip, back to it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def length_sorted(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Divide rows into batches of similar length; each is within the token budget or has one row."""
    batches: list[list[int]] = []
    for row in sorted(rows, key=lambda row: (lengths[row], row)):
        if not batches or (len(batches[-1]) + 1) * lengths[row] > budget:
            batches.append([])
        batches[-1].append(row)
    return batches


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is an out-of-memory error; some allocators raise a plain RuntimeError."""
    forms = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(form in str(error) for form in forms)
