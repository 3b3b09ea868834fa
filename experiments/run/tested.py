"""Test prompts under interventions: all that decline, and a draw of those that answer; shares of all from these.

The strata are label, whether the plain model answers, and whether the answer is known. The judged effects are shares of
decliners, of which every one is measured under both ablations.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Bool, Int, Shaped

from experiments.run.inputs import RunInputs
from experiments.run.outcomes import Outcomes, Share
from probes.statistics.seeds import named_rng
from probes.statistics.two_phase import TwoPhaseSample, draw

Rows = Int[np.ndarray, " rows"]


def strata_of(inputs: RunInputs) -> Shaped[np.ndarray, " prompts"]:
    """Return the stratum of each prompt of the corpus, (n,) str."""
    answered = inputs.behaviour.answered.tolist()
    named = zip(inputs.prompts, answered, strict=True)
    return np.array([f"{p.label}/{'answered' if did else 'not'}/{p.answer is not None}" for p, did in named])


def tested_rows(inputs: RunInputs, *, answered: int, others: int | None) -> Rows:
    """Return at most so many test prompts of each stratum whose prompts are answered, and of each other (None: all)."""
    rows = np.flatnonzero(inputs.corpus.rated & inputs.corpus.within("test"))
    stratum, drawn = strata_of(inputs)[rows], list[Rows]()
    for name in np.unique(stratum):
        own = rows[stratum == name]
        most = answered if inputs.behaviour.answered[own[0]] else others
        rng = named_rng(inputs.config.seed, "interventions", name)
        drawn.append(own if most is None else own[draw(inputs.corpus.groups_among(own), most, rng)])
    return np.sort(np.concatenate(drawn))


def sample_of(inputs: RunInputs, rows: Rows, *measured: Outcomes) -> TwoPhaseSample:
    """Return which of some prompts have outcomes, all of those given, with their strata and groups."""
    here = np.logical_and.reduce([np.isin(rows, of.rows) for of in measured])
    return TwoPhaseSample(here, strata_of(inputs)[rows], inputs.corpus.groups_among(rows))


def hits_among(of: Outcomes, rows: Rows, counted: Collection[str] | None) -> Bool[np.ndarray, " rows"]:
    """Return which of some prompts act as counted (None: state the known answer); False where there is no outcome."""
    hit, here = np.zeros(len(rows), dtype=bool), np.isin(rows, of.rows)
    hit[here] = of.among(rows[here]).hits(counted)
    return hit


def judged_among(rows: Rows, *measured: Outcomes) -> Rows:
    """Leave out the prompts that have an outcome without an action."""
    return rows[~np.isin(rows, np.concatenate([of.rows[~of.judged] for of in measured]))]


def share_of_all(
    inputs: RunInputs, rows: Rows, now: Outcomes, counted: Collection[str] | None, before: Outcomes | None = None
) -> Share:
    """Return the share of the judged among some prompts, and its paired change, as `outcomes.share` does."""
    judged = judged_among(rows, now)
    rate = sample_of(inputs, judged, now).rate(hits_among(now, judged, counted))
    observed = Share.of(rate, unjudged=len(rows) - len(judged))
    if before is None:
        return observed
    both = judged_among(judged, before)
    a, b = (hits_among(of, both, counted) for of in (now, before))
    return Share.of(observed, change=sample_of(inputs, both, now, before).difference(a, b))
