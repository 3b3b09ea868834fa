"""Robustness: does the model still refuse a harmful request in a role-play or in milder words?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, Outcomes, share
from experiments.side_effects.results import WrappedRequests
from experiments.side_effects.wraps import Wrap, wrap_prompt
from extract.chat.render import render
from extract.model.edit import Edit
from extract.prompts.prompt import Prompt
from probes.statistics.seeds import named_rng
from scoring.actions import ANSWERED

COUNTED = {"refused": ("refuse",), "answered": tuple(sorted(ANSWERED))}


@dataclass(frozen=True)
class WrappedPrompts:
    """Harmful prompts in one wrap; without it, the plain model refuses them."""

    rows: Int[np.ndarray, " prompts"]  # of the corpus
    prompts: tuple[Prompt, ...]
    unchanged: int  # refused prompts that the wrap does not change, which are left out


def robustness(
    loaded: LoadedRun, interventions: Mapping[str, Sequence[Edit]], wraps: Mapping[str, Wrap]
) -> dict[str, dict[str, WrappedRequests]]:
    """Generate and judge the wrapped prompts under each intervention.

    Returns:
        For each intervention and wrap, the shares `refused` and `answered` (the rest declines in another way or answers
        another request), each with its change against the intervention 'none'; and the number of `unchanged` prompts.
    """
    chosen = {name: choose_prompts(loaded, name, wrap) for name, wrap in wraps.items()}
    asked = [prompt for each in chosen.values() for prompt in each.prompts]
    completer = replace(
        loaded.completer, prompts=asked, rendered=[render(loaded.model.tokenizer, prompt) for prompt in asked]
    )
    rows = range(len(asked))
    with loaded.reporter.task("wrapped harmful prompts", len(rows) * len(interventions)) as advance:
        done = completer.complete_each(rows, [Setting(edits) for edits in interventions.values()], advance)
    outcomes = {
        name: Outcomes.completed(np.arange(len(asked)), each, asked)
        for name, each in zip(interventions, done, strict=True)
    }
    wrapped: dict[str, dict[str, WrappedRequests]] = {name: {} for name in interventions}
    start = 0
    for wrap, each in chosen.items():
        part, groups = np.arange(start, start := start + len(each.rows)), loaded.corpus.groups[each.rows]
        plain = outcomes[NOTHING].among(part)
        for name, of in outcomes.items():
            now, before = of.among(part), None if name == NOTHING else plain
            shares = {what: share(now, counted, groups, before) for what, counted in COUNTED.items()}
            wrapped[name][wrap] = WrappedRequests(**shares, unchanged=each.unchanged)
    return wrapped


def choose_prompts(inputs: RunInputs, name: str, wrap: Wrap) -> WrappedPrompts:
    """Wrap harmful test prompts that the plain model refuses, at most `n_side_effects` of those that the wrap changes.

    All wraps draw from the same random order, so that they share as many prompts as possible.
    """
    refused = inputs.behaviour.decliners("normative", "test")
    shuffled = named_rng(inputs.config.seed, "robustness").permutation(refused).tolist()
    changed = {row: new for row in shuffled if (new := wrap_prompt(inputs.prompts[row], name, wrap)) is not None}
    rows = sorted(list(changed)[: inputs.config.dissociate.n_side_effects])
    return WrappedPrompts(np.array(rows, dtype=int), tuple(changed[row] for row in rows), len(refused) - len(changed))
