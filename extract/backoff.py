"""Batches within a token budget that halves when a device runs out of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from extract.errors import UserError


@dataclass
class TokenBudget:
    """How many tokens a batch may hold, padding included. A size that did not fit is not tried again.

    Where prompts weigh alike, as while they are answered, it may count prompts instead: each has the length 1.
    """

    tokens: int
    say: Callable[[str], None] = lambda line: None
    unit: Literal["tokens", "prompts"] = "tokens"

    def run(self, lengths: Sequence[int], work: Callable[[list[int]], None]) -> None:
        """Call `work(rows)` for batches of rows of like length; one that runs out of memory is done again in halves.

        Raises:
            UserError: one row alone does not fit.
        """
        waiting = length_sorted(range(len(lengths)), lengths, self.tokens)
        while waiting:
            rows = waiting.pop(0)
            if self._fits(work, rows):
                continue
            used = len(rows) * max(lengths[row] for row in rows)
            if len(rows) == 1:
                raise self._too_large(used)
            self.tokens = max(1, used // 2)
            unit = self.unit if self.tokens > 1 else self.unit[:-1]
            self.say(f"out of memory with {len(rows)} prompts at once: going on with {self.tokens} {unit} a batch")
            left = [*rows, *(row for batch in waiting for row in batch)]
            waiting = length_sorted(left, lengths, self.tokens)

    def _too_large(self, tokens: int) -> UserError:
        remedy = "use a smaller model or dtype, more memory, or shorter prompts"
        if self.unit == "tokens":
            return UserError(f"out of memory on one prompt of {tokens} tokens; {remedy}")
        return UserError(f"out of memory while one prompt alone was answered; {remedy} or answers")

    def _fits(self, work: Callable[[list[int]], None], rows: list[int]) -> bool:
        try:
            work(rows)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        else:
            return True
        if torch.cuda.is_available():  # outside the handler, whose traceback still holds the failed pass's tensors
            torch.cuda.empty_cache()
        return False


def length_sorted(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Divide rows into batches of like lengths, each within the token budget (or of one row)."""
    batches: list[list[int]] = []
    for row in sorted(rows, key=lambda row: (lengths[row], row)):
        if not batches or (len(batches[-1]) + 1) * lengths[row] > budget:
            batches.append([])
        batches[-1].append(row)
    return batches


def is_out_of_memory(error: Exception) -> bool:
    """Say whether an error means that memory ran out; some allocators raise a plain RuntimeError."""
    forms = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(form in str(error) for form in forms)
