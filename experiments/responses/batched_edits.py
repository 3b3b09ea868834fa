"""Batched interventions: many trials on the same prompts in few forward passes, each on its own rows of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Shaped
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, cache_prompts, repeat_batch
from extract.model.edit import Edit
from steering.interventions import for_rows

Trial = Sequence[Edit]  # edits that are tried together
MOST_ROWS = 256  # rows of a pass; more rows make a device little faster
MOST_LOGITS = 1 << 25  # logits of a pass (rows x steps x vocabulary): 128 MiB in float32


@dataclass(frozen=True)
class TrialBatch:
    """One forward pass: the cached prompts repeated once for each trial, and the edits of these trials."""

    cached: CachedPrompts
    edits: list[Edit]
    trials: slice
    n_rows: int

    def split(self, values: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "trials rows_each ..."]:
        """Split the values of a pass by trial."""
        each = values.reshape(-1, self.n_rows, *values.shape[1:])
        return each[: self.trials.stop - self.trials.start]


class RepeatedPrompts:
    """Prompts whose keys and values are computed once and repeated for each trial of a pass."""

    def __init__(self, model: ChatModel, rows: Sequence[Rendered]) -> None:
        self.n_rows = len(rows)
        self._vocabulary = int(model.model.config.get_text_config().vocab_size)
        self._once = cache_prompts(model, model.batch(list(rows)))
        self._repeated = (1, self._once)  # the last number of times; keeping all would fill the memory

    def passes(self, trials: Sequence[Trial], n_distributions: int) -> Iterator[TrialBatch]:
        """Yield the passes that cover all trials.

        All passes repeat the prompts equally often, so that each has the same shape as a pass without edits; the last
        may leave some repetitions unedited.

        Args:
            n_distributions: number of next-token distributions that a pass computes for each row.
        """
        n = trials_per_pass(len(trials), self.n_rows, n_distributions * self._vocabulary)
        for start in range(0, len(trials), n):
            held = slice(start, min(start + n, len(trials)))
            placed = [(slice(i * self.n_rows, (i + 1) * self.n_rows), trial) for i, trial in enumerate(trials[held])]
            edits = [for_rows(edit, rows) for rows, trial in placed for edit in trial]
            yield TrialBatch(self.times(n), edits, held, self.n_rows)

    def times(self, n: int) -> CachedPrompts:
        """Return the prompts repeated n times."""
        if n == 1:
            return self._once
        if n != self._repeated[0]:
            self._repeated = (n, repeat_batch(self._once, n))
        return self._repeated[1]


def trials_per_pass(n_trials: int, n_rows: int, logits_per_row: int) -> int:
    """Return the number of trials of `n_rows` rows in one pass, at least one; passes are of similar size."""
    most = max(1, min(MOST_ROWS // n_rows, MOST_LOGITS // max(1, n_rows * logits_per_row)))
    n_passes = -(-n_trials // most)
    return -(-n_trials // n_passes)
