"""How many interventions one forward pass may try at once, each on its own block of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extract.edit import Edit
from extract.model import ChatModel
from steering.interventions import for_rows

Trial = Sequence[Edit]  # the edits that are tried together
MOST_ROWS = 256  # of a pass: beyond it a device gains little
MOST_LOGITS = 1 << 25  # of a pass, vocabulary included: 128 MiB in float32, whatever the vocabulary


def vocabulary(model: ChatModel) -> int:
    """Return the size of a model's vocabulary."""
    return int(model.model.config.get_text_config().vocab_size)


def at_once(n_trials: int, n_rows: int, logits_per_row: int) -> int:
    """Return the number of blocks of `n_rows` that one pass may hold, at least one; passes are of like size."""
    most = max(1, min(MOST_ROWS // n_rows, MOST_LOGITS // (n_rows * logits_per_row)))
    n_passes = -(-n_trials // most)
    return -(-n_trials // n_passes)


def blocks(trials: Sequence[Trial], n_rows: int, logits_per_row: int) -> Iterator[tuple[slice, list[Edit]]]:
    """Yield, for each pass, which trials it holds and their edits, each restricted to its block.

    Every pass has as many blocks as the first, so that what is compared with a pass without edits is compared with
    one of the same shape; the last pass may leave some of them unedited.
    """
    n = at_once(len(trials), n_rows, logits_per_row)
    for start in range(0, len(trials), n):
        held = slice(start, min(start + n, len(trials)))
        placed = [(slice(i * n_rows, (i + 1) * n_rows), trial) for i, trial in enumerate(trials[held])]
        yield held, [for_rows(edit, rows) for rows, trial in placed for edit in trial]
