"""Fits a run into a time on this machine: leaves out what costs much time and little power, and says what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, inf
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dissociation.power import contrast_power, null_power
from experiments.pipeline.graph import budgeted
from experiments.pipeline.machine import (
    LENGTHS,
    Footprint,
    Machine,
    gigabytes,
    measure_model,
    measured_speed,
    with_speed,
)
from experiments.pipeline.plan import RunPrompts, estimate
from experiments.probing.read_probes import check_folds
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import BudgetConfig, RunConfig, with_value
from experiments.run.corpus import Corpus, check_parts
from extract.errors import UserError
from extract.progress import Reporter

USED = 0.9  # share of the time that is planned for: the expectation is not exact
USUAL_TOKENS = 64  # of an answer; a run that asks for more needs them, as a model that thinks first does
LEAST_LAYERS = 6  # of a run; fewer would say little of where a decision is written
OWN, OTHER = 0.6, 0.1  # effects of ablating on the own and the other behaviour, for the power of fewer prompts
BEYOND = 0.01  # share of null directions whose effect is larger than a real one's, for the power of fewer of them

# from what says least about the verdicts to what their power rests on, as --set takes them
CUTS = """
    dissociate.variants=false triggers.attributed=8 triggers.patched=16 triggers.erased=20
    dissociate.n_null_generation=5 dissociate.positions=["post_last"] dissociate.n_null_onset=99
    steer.system_lines=[] steer.one_dial=false generate.max_new_tokens=48 extract.layers=2
    dissociate.n_null_onset=39 generate.max_new_tokens=32 dissociate.n_side_effects=24
    dissociate.n_null_generation=0 extract.layers=4 triggers.attributed=0 triggers.patched=0 triggers.erased=0
    generate.limit_dual_use=40 generate.limit=130 generate.max_new_tokens=24 dissociate.n_null_onset=19
    generate.limit=90 dissociate.n_selection=8 dissociate.n_onset=20 generate.limit_dual_use=10 generate.limit=60
    generate.limit=40 dissociate.n_side_effects=12 extract.layers=5 generate.limit=28 dissociate.n_selection=4
    dissociate.n_onset=8 dissociate.n_side_effects=6 generate.limit=20
"""
LADDER = [(key, json.loads(value)) for key, value in (cut.split("=") for cut in CUTS.split())]


def fit_budget(config: RunConfig, directory: Path, until: str, minutes: float, reporter: Reporter) -> RunConfig:
    """Choose what a run leaves out, so that it ends within some minutes from now; tells what and what power it costs.

    UserError: the weights do not fit into memory, or the least run does not fit into the time.
    """
    started = time.monotonic()

    def measure(config: RunConfig, shape: Any, tokenizer: Any, size: Footprint, machine: Machine, _: Any) -> Machine:
        options = config.model.loading
        if options.quantization is None and options.max_memory is None:
            if size.weights > machine.memory:
                raise UserError(
                    f"the weights take {gigabytes(size.weights)}, and {machine.name} have "
                    f"{gigabytes(machine.memory)} of memory; choose a smaller model, or see the keys of "
                    "model.loading"
                )
            return measured_speed(config, shape, tokenizer, size, machine, reporter)
        model, rows = LoadedRun(config, directory, Reporter(quiet=True)).model, config.generate.batch_size
        return with_speed(machine, size, rows, measure_model(model, size.n_layers, rows, LENGTHS[0]))

    planned = estimate(config, until, reporter, measure)
    whole, model = planned.given, planned.model

    @cache
    def answered(limit: int | None, limit_dual_use: int | None) -> RunPrompts:
        return whole.drawn(limit, limit_dual_use, config.seed)

    def limited(tried: RunConfig) -> RunPrompts:
        return answered(tried.generate.limit, tried.generate.limit_dual_use)

    def lasts(tried: RunConfig) -> float:
        return replace(planned, config=tried, given=limited(tried)).plan().minutes(planned.machine)[1]

    def works(tried: RunConfig) -> bool:
        return can_be_divided(limited(tried).corpus, tried)

    most = USED * minutes - (time.monotonic() - started) / 60
    cut = fit_time(config, model.n_layers, list(whole.corpus.counts().values()), lasts, most, works)
    sentences = left_out(config, cut, whole.corpus, limited(cut).corpus, model.n_layers)
    fits = "takes up to {:.0f} minutes, within the budget; nothing is left out"
    cuts = f"would take up to {{:.0f}} minutes; to fit into {minutes:g}, it leaves out:"
    reporter.say("the whole run " + (cuts if sentences else fits).format(lasts(config)))
    for sentence in sentences:
        reporter.say("  " + sentence)
    budget = BudgetConfig(minutes=minutes, of=budgeted(config), left_out=sentences)
    return cut.model_copy(update={"budget": budget})


def can_be_divided(corpus: Corpus, config: RunConfig) -> bool:
    """Return whether every part and fold of the prompts that a configuration takes has what a run needs."""
    try:
        check_parts(corpus, config.prompts)
        check_folds(corpus, config.seed)
    except UserError:
        return False
    return True


def fit_time(
    config: RunConfig,
    n_layers: int,
    labels: Sequence[int],
    minutes: Callable[[RunConfig], float],
    most: float,
    works: Callable[[RunConfig], bool] = lambda config: True,
) -> RunConfig:
    """Return the configuration with as many cuts as it takes to last at most so many minutes; each shortens it.

    `labels` are the numbers of prompts of each label. Cuts to prompts of which no run can be made (`works`) are left
    out. UserError: not even the least run fits.
    """
    lasting, layers = minutes(config), config.extract.layers or tuple(range(n_layers))
    for key, value in LADDER:
        if lasting <= most:
            break
        lower = _applied(key, value, config, layers, max(labels))
        if lower is not None:
            shorter = with_value(config, key, lower[0])
            if key == "generate.limit" and not works(shorter):
                continue
            if (then := minutes(shorter)) < lasting:  # not so where no step of these stages depends on the key
                config, lasting = shorter, then
    if lasting > most:
        raise UserError(
            f"the least run takes about {lasting:.1f} minutes on this machine, and there are "
            f"{max(0.0, most):.1f}; give a larger --budget, or a smaller model"
        )
    return config


def _applied(
    key: str, value: Any, config: RunConfig, layers: tuple[int, ...], most_of_a_label: int
) -> tuple[Any] | None:
    """Return the value that a cut gives its key, or None where it would not make the run with these layers smaller."""
    now = attrgetter(key)(config)
    if key == "extract.layers":  # every so many-th, unless the run writes at every layer, or at given directions' ones
        needed = "later" in (config.dissociate.layers, config.steer.layers) or config.dissociate.directions is not None
        value = layers[value - 1 :: value]
        return None if needed or not LEAST_LAYERS <= len(value) < len(now or layers) else (value,)
    if key == "generate.max_new_tokens" and now > USUAL_TOKENS:
        return None
    if key == "dissociate.positions" and not {*value} <= {*(config.extract.positions or value)}:
        return None
    if key == "dissociate.n_null_onset":
        value = max(value, ceil(1 / config.dissociate.alpha - 1e-9) - 1)
    if key == "generate.limit":
        now = min(now or inf, most_of_a_label)
    if isinstance(value, list):
        return (value,) if now is None or len(value) < len(now) else None
    return (value,) if value < (inf if now is None else now) else None


# -- what it costs -----------------------------------------------------------------------------------------------------


NO_VERDICT = "; no verdict depends on them."
LESS_SURE = ": standard errors grow by {more:.0%}."
LEFT_OUT = {  # what is said of a key that was cut from n to m
    "dissociate.variants": "Other forms of ablation are not tried.",
    "triggers.attributed": "At most {m} of {n} requests of each label whose words are left out in turn" + NO_VERDICT,
    "triggers.patched": "At most {m} of {n} pairs with the trigger word patched" + NO_VERDICT,
    "triggers.erased": "At most {m} of {n} requests of each kind with the trigger word erased" + NO_VERDICT,
    "dissociate.positions": (
        "Write directions are fitted at the last prompt token alone; one fitted earlier may be stronger."
    ),
    "extract.layers": (
        "{m} of {n} layers are read and written; what is decided between two of them is found at the next."
    ),
    "dissociate.n_null_onset": (
        "{m} of {n} permuted-label directions: p is not below {p:.2g}, and an effect that {beyond:.0%} of them exceed "
        "is shown with a power of {power:.0%} instead of {whole_power:.0%}."
    ),
    "dissociate.n_null_generation": (
        "{m} of {n} permuted-label directions are tried on generated answers" + NO_VERDICT
    ),
    "dissociate.n_selection": (
        "At most {m} instead of {n} validation prompts of each class choose the write locus" + LESS_SURE
    ),
    "dissociate.n_onset": (
        "At most {m} instead of {n} declined prompts of each behaviour give the onset effects" + LESS_SURE
    ),
    "dissociate.n_side_effects": "At most {m} instead of {n} prompts give each side effect" + LESS_SURE,
    "generate.max_new_tokens": (
        "Answers end after {m} instead of {n} tokens; a caution or a fact that comes later is not read."
    ),
    "steer.system_lines": "The dials are not compared with system lines.",
    "steer.one_dial": "Two dials are not compared with one.",
}


def left_out(whole: RunConfig, cut: RunConfig, before: Corpus, after: Corpus, n_layers: int) -> tuple[str, ...]:
    """Return in sentences what a cut leaves out, and the power that it costs; the corpora are before and after it."""
    return (*_smaller(whole, cut, n_layers), *_fewer_prompts(whole, cut, before, after))


def _smaller(whole: RunConfig, cut: RunConfig, n_layers: int) -> Iterator[str]:
    for key, sentence in LEFT_OUT.items():
        n, m = attrgetter(key)(whole), attrgetter(key)(cut)
        if n == m:
            continue
        numbers: dict[str, float] = {}
        if key == "extract.layers":
            n, m = len(n or range(n_layers)), len(m)
        if key == "dissociate.n_null_onset":
            power, whole_power = (null_power(BEYOND, draws, whole.dissociate.alpha) for draws in (m, n))
            numbers = {"p": 1 / (m + 1), "beyond": BEYOND, "power": power, "whole_power": whole_power}
        if sentence.endswith(LESS_SURE):
            numbers["more"] = np.sqrt(n / m) - 1
        yield sentence.format(n=n, m=m, **numbers)


def _fewer_prompts(whole: RunConfig, cut: RunConfig, before: Corpus, after: Corpus) -> Iterator[str]:
    if (few := cut.generate.limit_dual_use) is not None and few != whole.generate.limit_dual_use:
        yield f"At most {few} prompts of dual use are answered; they enter no rate and no verdict."
    if len(after) == len(before):
        return
    yield f"{len(after)} of {len(before)} prompts are answered; the others are only read."
    margin, alpha = whole.dissociate.margin, whole.dissociate.alpha
    only_own, only_other = OWN * (1 - OTHER), OTHER * (1 - OWN)
    for label, action in (("harmful", "refused"), ("uncertain", "abstained from")):
        groups = [
            int(c.effective_groups(np.flatnonzero(c.labelled(label) & c.within("test")))) for c in (after, before)
        ]
        powers = [contrast_power(only_own, only_other, n, (margin, inf), alpha) for n in groups]
        yield (
            f"{groups[0]} of {groups[1]} independent {label} prompts are tested: if all are {action}, an own effect "
            f"of {OWN:.0%} against {OTHER:.0%} is shown to exceed the margin with a power of {powers[0]:.0%} "
            f"instead of {powers[1]:.0%}."
        )
