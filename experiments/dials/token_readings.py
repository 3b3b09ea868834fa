"""Readings at every token of test prompts: one forward pass a prompt, without interventions.

Each dial's probe is read at the dial's layer and site, at every token from the user's last turn on. Only at the
position that the dial itself reads is the value its calibrated log-odds.
"""

from __future__ import annotations

import numpy as np

from experiments.dials.results import MOST_PROMPTS, TOKEN_READINGS, TokenReadings
from experiments.responses.loaded_run import LoadedRun
from extract.atomic_write import write_jsonl
from extract.backoff import TokenBudget
from extract.chat.render import Rendered, token_texts
from steering.controller import token_log_odds
from steering.dial import Dial, Kind
from steering.dial_file import read_dials

DIGITS = 3  # of the log-odds


def read_tokens(loaded: LoadedRun) -> None:
    """Write token_readings.jsonl, a line for each of at most `MOST_PROMPTS` test prompts; none without dials."""
    dials = [dial for dial in read_dials(loaded.file("dials.safetensors"))[0] if dial.read is not None]
    found = _read(loaded, dials, some_of(np.flatnonzero(loaded.corpus.within("test")).tolist())) if dials else []
    write_jsonl(loaded.file(TOKEN_READINGS), (line.to_dict() for line in found))


def some_of(rows: list[int], most: int = MOST_PROMPTS) -> list[int]:
    """Return at most so many rows, evenly spread over all of them."""
    return rows if len(rows) <= most else [rows[int(k * len(rows) / most)] for k in range(most)]


def _read(loaded: LoadedRun, dials: list[Dial], rows: list[int]) -> list[TokenReadings]:
    model, prompts = loaded.model, [loaded.rendered[row] for row in rows]
    budget = TokenBudget.on(model.device, loaded.config.extract.token_budget, loaded.reporter.say)
    read: dict[int, dict[Kind, np.ndarray]] = {}
    with loaded.reporter.task("readings at every token", len(rows)) as advance:

        def work(batch: list[int]) -> None:
            found = token_log_odds(model, dials, [prompts[i].token_ids for i in batch])
            for k, i in enumerate(batch):
                read[i] = {kind: values[k] for kind, values in found.items()}
            advance(len(batch))

        budget.run([len(prompt.token_ids) for prompt in prompts], work)
    return [_line(loaded, rows[i], prompts[i], read[i], dials) for i in range(len(rows))]


def _line(
    loaded: LoadedRun, row: int, prompt: Rendered, read: dict[Kind, np.ndarray], dials: list[Dial]
) -> TokenReadings:
    first = prompt.instruction.start
    return TokenReadings(
        id=loaded.prompts[row].id,
        tokens=token_texts(loaded.model.tokenizer, prompt.token_ids[first:]),
        words=len(prompt.instruction),
        log_odds={kind: values[first:].round(DIGITS).tolist() for kind, values in read.items()},
        read_at={d.kind: [i - first for i in prompt.roles[d.read.position]] for d in dials if d.read is not None},
    )
