"""The check behind `refusal prompts check`: validity, balance, pairs, and surface cues that a probe could exploit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from experiments.prompt_check.results import PromptCheck
from experiments.prompt_check.structure import (
    certifiable,
    count_contexts,
    count_personas,
    count_quadruples,
    count_triggers,
    count_twins,
)
from experiments.prompt_check.word_cues import MeasuredCues, cue_record, full_text, measure_cues
from experiments.run.config import CategoriesConfig
from experiments.run.corpus import Corpus, divide
from experiments.triggers.quadruples import quadruples
from extract.prompts.sources import PromptsConfig, read_prompts

LEAST_OF_CATEGORY = CategoriesConfig().least  # prompts to be declined, and benign ones


def check(path: Path | None, dataset: str | None = None) -> PromptCheck:
    """Return counts, the structure of the prompts, the AUROC of words alone, and the faults found (`problems`).

    Args:
        path: a prompt file; with `dataset`, its local copy, or None to read it from the hub.
        dataset: name of a public set.

    Raises:
        UserError: a row is no valid prompt, or the file's own split separates a group.
    """
    given = {"path": path} if dataset is None else {"datasets": [{"name": dataset, "path": path}]}
    config = PromptsConfig.model_validate(given)
    prompts = read_prompts(config, seed=0)
    corpus = divide(prompts, config, seed=0)
    repeated = sum(n - 1 for n in Counter(full_text(prompt) for prompt in prompts).values())
    pairs, quadruple_problems = count_quadruples(corpus)
    triggers, trigger_problems = count_triggers(prompts)
    twins, twin_problems = count_twins(prompts)
    personas, persona_problems = count_personas(prompts)
    contrasts = word_contrasts(corpus)
    confounds = [line for contrast in contrasts.values() if contrast is not None for line in contrast.confounds()]
    benign, counts = corpus.n_groups(np.flatnonzero(corpus.benign)), corpus.counts()
    return PromptCheck(
        prompts=len(prompts),
        labels=counts,
        lacks=tuple(label for label, count in counts.items() if not count),
        right_actions=dict(sorted(Counter(prompt.right_action for prompt in prompts).items())),
        categories=len({prompt.category for prompt in prompts}),
        groups=corpus.n_groups(np.arange(len(corpus))),
        repeated_texts=repeated,
        independent_benign=benign,
        certifiable_rate=certifiable(benign),
        quadruples=pairs,
        triggers=triggers,
        twins=twins,
        personas=personas,
        contexts=count_contexts(corpus),
        words={name: cue_record(found) for name, found in contrasts.items()},
        problems=(
            *([f"{repeated} texts are repeated"] if repeated else []),
            *quadruple_problems,
            *trigger_problems,
            *twin_problems,
            *persona_problems,
            *confounds,
        ),
    )


def word_contrasts(corpus: Corpus) -> dict[str, MeasuredCues | None]:
    """Measure how well words separate the labels: over all prompts, within quadruples, and within large categories."""
    every = np.arange(len(corpus))
    requests = corpus.harmful | corpus.requests
    asked = {
        "harmful vs benign": (requests, corpus.harmful),
        "same, within trigger prompts": (requests & corpus.trigger, corpus.harmful),
        "same, within quadruples": (np.isin(every, quadruples(corpus, every).rows), corpus.harmful),
        "uncertain vs twins": (corpus.uncertain | corpus.twins, corpus.uncertain),
    } | _within_categories(corpus)
    found = {}
    for name, (among, positive) in asked.items():
        rows = np.flatnonzero(among)
        found[name] = measure_cues(name, [corpus.prompts[row] for row in rows], positive[rows], corpus.groups[rows])
    return found


def _within_categories(corpus: Corpus) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, by name, the prompts of each category that is large enough to be tested, and which are to be declined."""
    declined, names = corpus.harmful | corpus.uncertain, np.array([p.category or "" for p in corpus.prompts])
    inside = {name: (names == name) & corpus.rated for name in sorted(set(names.tolist()) - {""})}
    return {
        f"within {name}": (rows, declined)
        for name, rows in inside.items()
        if min(int((rows & declined).sum()), int((rows & ~declined).sum())) >= LEAST_OF_CATEGORY
    }
