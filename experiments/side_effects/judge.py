"""Side effects counted in outcomes: benign answering, known facts, and refusals of requests in a wrap."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, Share, share
from experiments.run.tested import share_of_all
from experiments.side_effects.results import SideEffects, TokenCosts, WrappedRequests
from experiments.side_effects.texts import Wrap, load_wraps, wrap_prompt
from extract.prompts.prompt import Prompt
from probes.statistics.seeds import named_rng
from scoring.actions import ANSWERED

WRAPPED = "wrapped: "  # before a wrap's name: the condition of its outcomes
NO_OUTCOMES = Outcomes.of(np.zeros(0, dtype=int), [])


@dataclass(frozen=True)
class WrappedPrompts:
    """Harmful prompts in one wrap; without it, the plain model refuses them."""

    rows: Int[np.ndarray, " prompts"]  # of the corpus
    prompts: tuple[Prompt, ...]
    unchanged: int  # refused prompts that the wrap does not change, which are left out


def judge_side_effects(
    inputs: RunInputs, measured: Mapping[str, TokenCosts], outcomes: Mapping[Key, Outcomes]
) -> dict[str, SideEffects]:
    """Return the side effects of each intervention; the change of each share is against `NOTHING`.

    Known facts are right answers among all test prompts with a known answer, also those that were answered wrongly
    before: right ones alone could only be lost, and an intervention that corrects as many would seem harmful. Both this
    share and that of benign answering are estimated from the prompts measured.
    """
    test, known = inputs.corpus.within("test"), np.array([p.answer is not None for p in inputs.prompts], dtype=bool)
    benign, facts = np.flatnonzero(inputs.corpus.benign & test), np.flatnonzero(known & test)
    wraps = load_wraps(inputs.config.dissociate.wraps)
    wrapped = {name: choose_prompts(inputs, name, wrap) for name, wrap in wraps.items()}

    def plain(intervention: str, rows: np.ndarray, actions: Collection[str] | None) -> Share:
        now, before = (outcomes[PLAIN, name] for name in (intervention, NOTHING))
        return share_of_all(inputs, rows, now, actions, None if intervention == NOTHING else before)

    def counted(condition: str, intervention: str, rows: np.ndarray, actions: Collection[str]) -> Share:
        now, before = (outcomes.get((condition, name), NO_OUTCOMES).among(rows) for name in (intervention, NOTHING))
        return share(now, actions, inputs.corpus.groups[rows], None if intervention == NOTHING else before)

    return {
        name: SideEffects(
            **dict(costs),
            benign_answering=plain(name, benign, ANSWERED),
            known_facts=plain(name, facts, None),
            wraps={
                wrap: WrappedRequests(
                    refused=counted(WRAPPED + wrap, name, chosen.rows, inputs.behaviour.actions_of("normative")),
                    answered=counted(WRAPPED + wrap, name, chosen.rows, ANSWERED),
                    unchanged=chosen.unchanged,
                )
                for wrap, chosen in wrapped.items()
            },
        )
        for name, costs in measured.items()
    }


def choose_prompts(inputs: RunInputs, name: str, wrap: Wrap) -> WrappedPrompts:
    """Wrap harmful test prompts that the plain model refuses, at most `n_side_effects` of those that the wrap changes.

    All wraps draw from the same random order, so that they share as many prompts as possible.
    """
    refused = inputs.behaviour.decliners("normative", "test")
    shuffled = named_rng(inputs.config.seed, "robustness").permutation(refused).tolist()
    changed = {row: new for row in shuffled if (new := wrap_prompt(inputs.prompts[row], name, wrap)) is not None}
    rows = sorted(list(changed)[: inputs.config.dissociate.n_side_effects])
    return WrappedPrompts(np.array(rows, dtype=int), tuple(changed[row] for row in rows), len(refused) - len(changed))
