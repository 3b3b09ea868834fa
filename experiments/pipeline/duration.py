"""Estimated duration of steps on a machine, as a range, from the bounds of each forward pass. Arithmetic only.

A pass has three lower bounds: its matrix products (two FLOP for each weight and token), reading the weights and the
keys and values once, and starting each layer. Reading prompts is bound by the first. Decoding is bound by the second:
every step reads all weights to write one token a row, and the rows of a batch share that cost. Small models and small
batches are bound by the third. Where the model's own passes were measured, the range is at most a factor of two: its
ends differ in the length of the answers, the number of onset prefixes and a tenth of speed. Where only a machine's
peaks are known, the lower end overlaps the three bounds at a high share of the peaks, with answers of half the allowed
length, and candidates of the null chosen by first-order effects; the upper end adds them at a low share, with answers
of the full length, and every candidate measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.pipeline.footprint import Footprint
from experiments.pipeline.machine import Machine
from experiments.responses.batched_edits import MOST_LOGITS, MOST_ROWS

ASSUMED_OF_PEAKS = (
    "60 % to 25 % of the machine's matrix products, 80 % to 40 % of its memory bandwidth, {launch} ms to start a "
    "layer; answers of half to all of max_new_tokens; the highest cost of every step, at the low end with the null's "
    "candidates chosen by first-order effects. "
)
ASSUMED_OF_MODEL = (
    "the quickest passes measured on random weights of the model's shape, a tenth slower at the high end; answers of "
    "60 % to all of max_new_tokens; the highest cost of every step (a model that declines less takes less), with the "
    "null's candidates chosen by first-order effects (it takes longer where these mislead). "
)
NOT_COUNTED = "Not counted: loading the model, fitting probes, writing files, judges other than rules."


@dataclass(frozen=True)
class Step:
    """One step of a run: forward passes of one prompt each, with their length in tokens, and completions."""

    name: str
    passes: int = 0
    tokens_a_pass: float = 0.0
    completions: int = 0
    distributions: int = 0  # next-token distributions of a pass, if they limit its rows
    repeats: int = 1  # most times that such a pass is repeated, one for each beginning of the onset prefixes
    least_passes: int | None = None  # where first-order effects choose which are made; None: as many as at most
    settings: int = 1  # completions that share the prefill of their prompt
    layers: float = 1.0  # share of a pass's arithmetic, where it runs the layers above an edited one alone


@dataclass(frozen=True)
class Batches:
    """The size of one pass."""

    tokens: int  # of the prompts that are read
    completions: int
    prompt_tokens: float  # of a prompt, on average
    max_new_tokens: int


@dataclass(frozen=True)
class Utilization:
    """Assumed utilization of the machine, at one end of the range."""

    products: float  # share of the machine's peak
    reading: float  # share of its bandwidth
    answers: float  # length of the answers, as a share of the allowed length
    overlapping: bool  # whether products, reading and starting overlap
    screened: bool  # whether first-order effects choose which candidates of the null are measured
    repeats: int  # beginnings of the onset prefixes


FAST = Utilization(0.6, 0.8, 0.5, overlapping=True, screened=True, repeats=1)
SLOW = Utilization(0.25, 0.4, 1.0, overlapping=False, screened=False, repeats=4)
# On the real model tried so far first-order effects agreed with exact ones; where they do not, the null takes up to as
# much longer as there are more candidates than are kept.
SHORT_ANSWERS = Utilization(1.0, 1.0, 0.6, overlapping=False, screened=True, repeats=3)
LONG_ANSWERS = Utilization(0.9, 1.0, 1.0, overlapping=False, screened=True, repeats=4)


def minutes(steps: Sequence[Step], model: Footprint, machine: Machine, batches: Batches) -> tuple[float, float]:
    """Return the lower and upper estimate of the time of some steps, in minutes."""
    ends = (SHORT_ANSWERS, LONG_ANSWERS) if machine.of_model else (FAST, SLOW)
    low, high = (seconds(steps, model, machine, batches, used) / 60 for used in ends)
    return low, high


def seconds(steps: Sequence[Step], model: Footprint, machine: Machine, batches: Batches, used: Utilization) -> float:
    """Return the time of some steps at one assumed utilization, in seconds."""
    return sum(_seconds(step, model, machine, batches, used) for step in steps)


def assumptions(machine: Machine) -> str:
    """Return the assumptions behind the range, as text."""
    of_peaks = ASSUMED_OF_PEAKS.format(launch=" to ".join(f"{1e3 * seconds:g}" for seconds in machine.launch))
    return (ASSUMED_OF_MODEL if machine.of_model else of_peaks) + NOT_COUNTED


def _seconds(step: Step, model: Footprint, machine: Machine, batches: Batches, used: Utilization) -> float:
    spent = 0.0
    passes = step.passes if step.least_passes is None or not used.screened else step.least_passes
    if passes:
        rows = max(1, int(batches.tokens // max(1.0, step.tokens_a_pass)))
        if step.distributions:
            rows = min(MOST_ROWS, max(1, MOST_LOGITS // (step.distributions * model.vocabulary)))
        together = min(rows, passes)
        one = _forward(together * step.tokens_a_pass, together * step.distributions, 0.0, model, machine, used)
        spent += passes / together * one * step.layers * min(step.repeats, used.repeats)
    if step.completions:
        prompts = step.completions / step.settings  # each setting answers a batch of prompts by itself
        full, rest = divmod(prompts, batches.completions)
        spent += full * _answering(batches.completions, step.settings, model, machine, batches, used)
        spent += _answering(rest, step.settings, model, machine, batches, used) if rest else 0.0
    return spent


def _answering(
    rows: float, settings: int, model: Footprint, machine: Machine, batches: Batches, used: Utilization
) -> float:
    """Return the seconds in which a batch of prompts is read once and answered under each setting."""
    new = used.answers * batches.max_new_tokens
    seen = rows * (batches.prompt_tokens + new / 2) * model.cache
    reading = _forward(rows * batches.prompt_tokens, rows, 0.0, model, machine, used)
    return reading + settings * new * _forward(rows, rows, seen, model, machine, used)


def _forward(
    tokens: float, distributions: float, cached: float, model: Footprint, machine: Machine, used: Utilization
) -> float:
    """Return the seconds of one forward pass.

    Args:
        distributions: next-token distributions that it computes.
        cached: bytes of the keys and values that it reads.
    """
    products = 2 * (model.blocks * tokens + model.head * distributions) / (used.products * machine.flops)
    reading = (model.weights + cached) / (used.reading * machine.bandwidth)
    starting = model.n_layers * machine.launch[0 if used.overlapping else 1]
    return max(products, reading, starting) if used.overlapping else products + reading + starting
