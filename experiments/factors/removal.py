"""Ask requests again once the system line, or everything before the last turn, is removed.

This asks for causes where `factors.observed` only observes: nothing else of the request changes. Who asks is part of
the request's own words and cannot be removed in general.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from experiments.factors.prompt_context import FACTORS, REMOVALS
from experiments.factors.results import AskedAgain
from experiments.responses.loaded_run import LoadedRun
from experiments.run.corpus import Corpus
from extract.chat.render import Rendered, render
from probes.statistics.seeds import named_rng

MOST = 100  # requests that are asked again


@dataclass(frozen=True)
class RemovedRequests:
    """Requests asked again with a factor removed: rows of the corpus, how they were rendered, what the model did."""

    rows: Int[np.ndarray, " n_asked"]
    rendered: tuple[Rendered, ...]
    actions: tuple[str | None, ...]

    def record(self, corpus: Corpus) -> AskedAgain:
        """Return what is written of it."""
        return AskedAgain(ids=tuple(corpus.prompts[row].id for row in self.rows), actions=self.actions)


def ask_without(loaded: LoadedRun, factor: str, rows: Int[np.ndarray, " n_rows"]) -> RemovedRequests | None:
    """Ask up to MOST of the requests that carry a factor again without it; None where none does."""
    read, change = FACTORS[factor], REMOVALS[factor]
    corpus = loaded.corpus
    carrying = rows[[read(corpus.prompts[row]) is not None for row in rows]]
    chosen = choose(corpus, carrying, loaded.config.seed)
    if len(chosen) == 0:
        return None
    bare = [change(corpus.prompts[row]) for row in chosen]
    rendered = tuple(render(loaded.model.tokenizer, prompt) for prompt in bare)
    with loaded.reporter.task(f"asking without the {factor.replace('_', ' ')}", len(bare)) as advance:
        said = replace(loaded.completer, prompts=bare, rendered=rendered).complete(range(len(bare)), advance=advance)
    return RemovedRequests(chosen, rendered, tuple(completion.action for completion in said))


def choose(
    corpus: Corpus, rows: Int[np.ndarray, " n_rows"], seed: int, most: int = MOST
) -> Int[np.ndarray, " n_chosen"]:
    """Choose some requests at most: of each group first one benign and one harmful, groups in random order."""
    rng, taken = named_rng(seed, "removal"), Counter[tuple[int, bool]]()
    order = rng.permutation(corpus.groups.max() + 1)
    places = []
    for row in rng.permutation(rows[corpus.requests[rows] | corpus.harmful[rows]]):
        group, harmful = int(corpus.groups[row]), bool(corpus.harmful[row])
        taken[group, harmful] += 1
        places.append((taken[group, harmful], order[group], harmful, int(row)))
    return np.array(sorted(row for *_, row in sorted(places)[:most]), dtype=int)
