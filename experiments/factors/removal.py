"""Removal of a factor: requests asked again without the system line, or without the turns before the last one.

This tests the cause, where `factors.observed` only observes: nothing else of the request changes. Who asks is part of
the request's text and cannot be removed in general.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from experiments.factors.prompt_context import FACTORS, REMOVALS
from experiments.responses.loaded_run import LoadedRun
from experiments.run.corpus import Corpus
from experiments.run.outcomes import Outcomes
from extract.chat.render import Rendered, render
from probes.statistics.seeds import named_rng

MOST = 100  # requests that are asked again


@dataclass(frozen=True)
class RemovedRequests:
    """Requests asked again with a factor removed."""

    outcomes: Outcomes
    rendered: tuple[Rendered, ...]


def ask_without(loaded: LoadedRun, factor: str, rows: Int[np.ndarray, " n_rows"]) -> RemovedRequests | None:
    """Ask up to MOST of the requests with a factor again without it; None where no request has it."""
    prompts, carries = loaded.corpus.prompts, FACTORS[factor]
    carrying = rows[[carries(prompts[row]) is not None for row in rows]]
    chosen = choose_requests(loaded.corpus, carrying, loaded.config.seed)
    if len(chosen) == 0:
        return None
    bare = [REMOVALS[factor](prompts[row]) for row in chosen]
    rendered = tuple(render(loaded.model.tokenizer, prompt) for prompt in bare)
    completer = replace(loaded.completer, prompts=bare, rendered=rendered)
    with loaded.reporter.task(f"asking without the {factor.replace('_', ' ')}", len(bare)) as advance:
        completions = completer.complete(range(len(bare)), advance=advance)
    return RemovedRequests(Outcomes.completed(chosen, completions, prompts), rendered)


def choose_requests(
    corpus: Corpus, rows: Int[np.ndarray, " n_rows"], seed: int, most: int = MOST
) -> Int[np.ndarray, " n_chosen"]:
    """Choose at most `most` requests: first one benign and one harmful of each group, groups in random order."""
    rng, taken = named_rng(seed, "removal"), Counter[tuple[int, bool]]()
    order = rng.permutation(corpus.groups.max() + 1)
    places = []
    for row in rng.permutation(rows[corpus.requests[rows] | corpus.harmful[rows]]):
        group, harmful = int(corpus.groups[row]), bool(corpus.harmful[row])
        taken[group, harmful] += 1
        places.append((taken[group, harmful], order[group], harmful, int(row)))
    return np.array(sorted(row for *_, row in sorted(places)[:most]), dtype=int)
