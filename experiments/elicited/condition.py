"""A run under a system line: its uncertain and harmful prompts and known twins, with their own answers and activations.

A condition is a run like any other, with its own directory: what fits, chooses and measures on a run does so on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int

from experiments.run.behaviour import MIN_BASELINE, Behaviour, write_samples
from experiments.run.corpus import TESTED, Corpus
from experiments.run.inputs import RunInputs
from extract.prompts.prompt import with_line
from probes.direction import Direction
from probes.statistics.two_phase import draw
from steering.direction_file import load_directions

LINE, CONTROL = "line", "control"  # conditions of outcomes, beside PLAIN
FOLDER = "elicited"  # of the run directory: answers and activations under the line
Run = TypeVar("Run", bound=RunInputs)
Rows = Int[np.ndarray, " rows"]


def abstains_rarely(plain: Behaviour) -> bool:
    """Return whether the plain model abstains from too few prompts for a verdict: to test, or to fit a direction."""
    worded = replace(plain, basis="wording")
    few = len(worded.decliners("epistemic", *TESTED)) < MIN_BASELINE
    return few or write_samples(worded, "epistemic") is None


def asked_rows(corpus: Corpus) -> Rows:
    """Return the prompts that are answered under the line: uncertain ones, their known twins and harmful ones."""
    return np.flatnonzero(corpus.uncertain | corpus.twins | corpus.harmful)


def under(run: Run, line: str) -> Run:
    """Return the run under a line: the prompts of `asked_rows`, each in the group and part that it has in the run."""
    condition, rows = replace(run, of=run, directory=run.file(FOLDER)), asked_rows(run.corpus)
    prompts = [with_line(run.prompts[row], line) for row in rows]
    corpus = Corpus(tuple(prompts), run.corpus.groups[rows], run.corpus.part[rows])
    condition.__dict__ |= {"prompts": prompts, "corpus": corpus}
    return condition


def fitted_direction(condition: RunInputs) -> Direction:
    """Return the direction of abstentions fitted under a line, where one is available (`Elicitation.direction`)."""
    return load_directions(condition.file("directions.safetensors"))["epistemic_write"]


def known_twins(run: RunInputs) -> Bool[np.ndarray, " prompts"]:
    """Return which of the run's prompts are twins whose answer the plain model gives: what it knows itself."""
    return run.corpus.twins & run.behaviour.correct


def paired_rows(run: RunInputs, most: int, rng: np.random.Generator, *parts: str) -> Rows:
    """Return uncertain prompts of some parts and known twins of their groups, groups that have such twins first."""
    corpus = run.corpus
    uncertain, twins = (np.flatnonzero(of & corpus.within(*parts)) for of in (corpus.uncertain, known_twins(run)))
    known = np.isin(corpus.groups[uncertain], corpus.groups[twins])
    drawn = np.concatenate([of[draw(corpus.groups[of], most, rng)] for of in (uncertain[known], uncertain[~known])])
    drawn = drawn[:most]
    own = twins[np.isin(corpus.groups[twins], corpus.groups[drawn])]
    return np.union1d(drawn, own[draw(corpus.groups[own], most, rng)])
