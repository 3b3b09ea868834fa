"""Many interventions on the same prompts in few forward passes, each on its own block of the batch."""

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

Trial = Sequence[Edit]  # the edits that are tried together
MOST_ROWS = 256  # of a pass: beyond it a device gains little
MOST_LOGITS = 1 << 25  # of a pass, vocabulary included: 128 MiB in float32, whatever the vocabulary


@dataclass(frozen=True)
class TrialBatch:
    """One pass to be made: cached prompts, block after block, and the edits of the trials it holds."""

    cached: CachedPrompts
    edits: list[Edit]
    trials: slice
    n_rows: int

    def split(self, values: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "trials rows_each ..."]:
        """Divide what the pass returned by trial."""
        each = values.reshape(-1, self.n_rows, *values.shape[1:])
        return each[: self.trials.stop - self.trials.start]


class RepeatedPrompts:
    """Prompts whose keys and values are computed once, repeated as often as a pass has trials."""

    def __init__(self, model: ChatModel, rows: Sequence[Rendered]) -> None:
        self.n_rows = len(rows)
        self._vocabulary = int(model.model.config.get_text_config().vocab_size)
        self._by_times = {1: cache_prompts(model, model.batch(list(rows)))}

    def passes(self, trials: Sequence[Trial], n_distributions: int) -> Iterator[TrialBatch]:
        """Yield the passes that hold all trials.

        Each has as many blocks as the first, so that it is of the same shape as a pass without edits; the last may
        leave some of them unedited.

        Args:
            n_distributions: how many next-token distributions a pass computes for each row.
        """
        n = trials_per_pass(len(trials), self.n_rows, n_distributions * self._vocabulary)
        for start in range(0, len(trials), n):
            held = slice(start, min(start + n, len(trials)))
            placed = [(slice(i * self.n_rows, (i + 1) * self.n_rows), trial) for i, trial in enumerate(trials[held])]
            edits = [for_rows(edit, rows) for rows, trial in placed for edit in trial]
            yield TrialBatch(self.times(n), edits, held, self.n_rows)

    def times(self, n: int) -> CachedPrompts:
        """Return the prompts n times over."""
        if n not in self._by_times:
            self._by_times[n] = repeat_batch(self._by_times[1], n)
        return self._by_times[n]


def trials_per_pass(n_trials: int, n_rows: int, logits_per_row: int) -> int:
    """Return the number of blocks of `n_rows` that one pass may hold, at least one; passes are of like size."""
    most = max(1, min(MOST_ROWS // n_rows, MOST_LOGITS // max(1, n_rows * logits_per_row)))
    n_passes = -(-n_trials // most)
    return -(-n_trials // n_passes)
