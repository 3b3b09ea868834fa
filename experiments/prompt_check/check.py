"""`refusal prompts check`: are prompts valid, balanced, paired, and what could a probe trained on them cheat with?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.prompt_check.structure import (
    certifiable,
    context_record,
    quadruple_record,
    table_record,
    trigger_record,
    twin_record,
)
from experiments.prompt_check.word_cues import Cues, cues, record, whole
from experiments.run.corpus import Corpus, divide
from experiments.triggers.quadruples import quadruples
from extract.prompts.sources import PromptsConfig, read_prompts


def check(path: Path | None, dataset: str | None = None) -> dict[str, Any]:
    """Return counts, how prompts belong together, what words alone can tell, and what is wrong (`problems`).

    Args:
        path: a prompt file; with a data set, its local copy, or none to take it from the hub.

    Raises:
        UserError: a row is no valid prompt, or the file's own split separates what belongs together.
    """
    given = {"path": path} if dataset is None else {"datasets": [{"name": dataset, "path": path}]}
    config = PromptsConfig.model_validate(given)
    prompts = read_prompts(config, seed=0)
    corpus = divide(prompts, config, seed=0)
    repeated = sum(n - 1 for n in Counter(whole(prompt) for prompt in prompts).values())
    parts: dict[str, Any] = {}
    problems = [f"{repeated} texts stand twice or more"] if repeated else []
    for name, (found, wrong) in {
        "quadruples": quadruple_record(corpus),
        "triggers": trigger_record(prompts),
        "twins": twin_record(prompts),
        "personas": table_record(prompts),
    }.items():
        parts[name] = found
        problems += wrong
    contrasts = word_contrasts(corpus)
    for contrast in contrasts.values():
        problems += contrast.cheats() if contrast is not None else []
    benign = corpus.n_groups(np.flatnonzero(corpus.benign))
    return {
        "prompts": len(prompts),
        "labels": corpus.counts(),
        "lacks, for a whole run": [label for label, count in corpus.counts().items() if not count],
        "right actions": dict(sorted(Counter(prompt.right_action for prompt in prompts).items())),
        "categories": len({prompt.category for prompt in prompts}),
        "groups": corpus.n_groups(np.arange(len(corpus))),
        "repeated texts": repeated,
        "independent benign prompts": benign,
        "certifiable rate": certifiable(benign),
        **parts,
        "contexts": context_record(corpus),
        "words": {name: record(found) for name, found in contrasts.items()},
        "problems": problems,
    }


def word_contrasts(corpus: Corpus) -> dict[str, Cues | None]:
    """Measure what words tell, within quadruples and over everything a probe is fitted on."""
    every = np.arange(len(corpus))
    requests = corpus.harmful | corpus.requests
    asked = {
        "harmful vs benign": (requests, corpus.harmful),
        "same, within trigger prompts": (requests & corpus.trigger, corpus.harmful),
        "same, within quadruples": (np.isin(every, quadruples(corpus, every).rows), corpus.harmful),
        "uncertain vs twins": (corpus.uncertain | corpus.twins, corpus.uncertain),
    }
    found = {}
    for name, (among, positive) in asked.items():
        rows = np.flatnonzero(among)
        found[name] = cues(name, [corpus.prompts[row] for row in rows], positive[rows], corpus.groups[rows])
    return found
