"""Removal of a factor: requests asked again without it, a test of the cause where `factors.observed` only observes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

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
    requests = rows[corpus.requests[rows] | corpus.harmful[rows]]
    kinds = corpus.harmful[requests]
    return np.sort(requests[spread_over_groups(corpus, requests, kinds, named_rng(seed, "removal"))[:most]])


def spread_over_groups(
    corpus: Corpus, rows: Int[np.ndarray, " n_rows"], kinds: Bool[np.ndarray, " n_rows"], rng: np.random.Generator
) -> list[int]:
    """Return the places of rows in random order, first one of each group and kind, then a second one, and so on."""
    order, taken = rng.permutation(corpus.groups.max() + 1), Counter[tuple[int, bool]]()
    places = []
    for place in rng.permutation(len(rows)).tolist():
        group, kind = int(corpus.groups[rows[place]]), bool(kinds[place])
        taken[group, kind] += 1
        places.append((taken[group, kind], int(order[group]), kind, int(rows[place]), place))
    return [place for *_, place in sorted(places)]
