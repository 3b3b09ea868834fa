"""Fits a run into a time on this machine: leaves out what costs much time and little power, and says what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from experiments.dissociation.power import contrast_power, null_power
from experiments.pipeline.footprint import footprint, gigabytes
from experiments.pipeline.graph import budgeted
from experiments.pipeline.machine import LENGTHS, measure_device, measure_model, measured_speed, with_speed
from experiments.pipeline.plan import RunPrompts, model_shape, plan_run, width
from experiments.probing.read_probes import check_folds
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import BudgetConfig, RunConfig, with_value
from experiments.run.corpus import Corpus, check_parts
from extract.chat.render import render
from extract.errors import UserError
from extract.progress import Reporter
from extract.prompts.sources import PromptsConfig, read_prompts

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
    prompts.limit_dual_use=40 prompts.limit=130 generate.max_new_tokens=24 dissociate.n_null_onset=19
    prompts.limit=90 dissociate.n_selection=8 dissociate.n_onset=20 prompts.limit_dual_use=10 prompts.limit=60
    prompts.limit=40 dissociate.n_side_effects=12 extract.layers=5 prompts.limit=28 dissociate.n_selection=4
    dissociate.n_onset=8 dissociate.n_side_effects=6 prompts.limit=20
"""
LADDER = [(key, json.loads(value)) for key, value in (cut.split("=") for cut in CUTS.split())]


def fit_budget(config: RunConfig, directory: Path, until: str, minutes: float, reporter: Reporter) -> RunConfig:
    """Choose what a run leaves out, so that it ends within some minutes from now; tells what and what power it costs.

    Raises:
        UserError: the weights do not fit into memory, or the least run does not fit into the time.
    """
    started = time.monotonic()
    described = model_shape(config, reporter)
    material = _Material(config, described[1])
    machine = measure_device(config.model.device)
    shape = footprint(described[0], width(config, machine))
    elsewhere = config.model.loading  # smaller weights, or weights that may lie in slower memory
    if shape.weights > machine.memory and elsewhere.quantization is None and elsewhere.max_memory is None:
        raise UserError(
            f"the weights take {gigabytes(shape.weights)}, and {machine.name} have "
            f"{gigabytes(machine.memory)} of memory; choose a smaller model, or see the keys of "
            "model.loading"
        )
    labels = list(material.of(config).corpus.counts().values())
    if elsewhere.quantization is None and elsewhere.max_memory is None:
        speed = measured_speed(config, *described, shape, machine, reporter)
    else:
        model, rows = LoadedRun(config, directory, Reporter(quiet=True)).model, config.generate.batch_size
        speed = with_speed(machine, shape, rows, measure_model(model, shape.n_layers, rows, LENGTHS[0]))

    def works(tried: RunConfig) -> bool:
        return _can_be_divided(material.of(tried).corpus, tried)

    def lasts(tried: RunConfig) -> float:
        return plan_run(tried, material.of(tried), shape, until).most_minutes(speed)

    most = USED * minutes - (time.monotonic() - started) / 60
    cut = fit_time(config, shape.n_layers, labels, lasts, most, works)
    sentences = left_out(config, cut, (material.of(config).corpus, material.of(cut).corpus), shape.n_layers)
    _tell(reporter, minutes, lasts(config), sentences)
    budget = BudgetConfig(minutes=minutes, of=budgeted(config), left_out=sentences)
    return cut.model_copy(update={"budget": budget})


class _Material:
    """The prompts of a configuration under any limit on their number."""

    def __init__(self, config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        self._render = cache(lambda prompt_id: render(tokenizer, self._by_id[prompt_id]))
        self._by_id = {prompt.id: prompt for prompt in read_prompts(config.prompts, config.seed)}
        self._known: dict[PromptsConfig, RunPrompts] = {}

    def of(self, config: RunConfig) -> RunPrompts:
        """Return the prompts that the run would take."""
        if config.prompts not in self._known:
            prompts = read_prompts(config.prompts, config.seed)
            self._known[config.prompts] = RunPrompts.of(
                config, prompts, [self._render(prompt.id) for prompt in prompts]
            )
        return self._known[config.prompts]


def _can_be_divided(corpus: Corpus, config: RunConfig) -> bool:
    """Return whether every part and fold of the prompts that a configuration takes has what a run needs."""
    try:
        check_parts(corpus, config.prompts)
        check_folds(corpus, config.seed)
    except UserError:
        return False
    return True


def _tell(reporter: Reporter, minutes: float, whole: float, sentences: tuple[str, ...]) -> None:
    if not sentences:
        reporter.say(f"the whole run takes up to {whole:.0f} minutes, within the budget; nothing is left out")
        return
    reporter.say(f"the whole run would take up to {whole:.0f} minutes; to fit into {minutes:g}, it leaves out:")
    for sentence in sentences:
        reporter.say("  " + sentence)


def fit_time(
    config: RunConfig,
    n_layers: int,
    labels: Sequence[int],
    minutes: Callable[[RunConfig], float],
    most: float,
    works: Callable[[RunConfig], bool] = lambda config: True,
) -> RunConfig:
    """Return the configuration with as many cuts as it takes to last at most so many minutes; each shortens it.

    Args:
        labels: the number of prompts of each label.
        minutes: the expected duration of a run.
        most: the minutes there are.
        works: whether a run can be made of the prompts that a configuration takes; cuts to others are left out.

    Raises:
        UserError: not even the least run fits.
    """
    lasting, layers = minutes(config), config.extract.layers or tuple(range(n_layers))
    for key, value in LADDER:
        if lasting <= most:
            break
        lower = _applied(key, value, config, layers, max(labels))
        if lower is not None:
            shorter = with_value(config, key, lower[0])
            if key.startswith("prompts.") and not works(shorter):
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
    """Return the value that a cut gives its key, or None where it would not make the run smaller.

    Args:
        layers: those of the run before any cut.
    """
    now = current(config, key)
    if key == "extract.layers":
        return None if _needs_its_layers(config) else _every(value, layers, now)
    if key == "generate.max_new_tokens" and now > USUAL_TOKENS:
        return None
    if key == "dissociate.positions" and not {*value} <= {*(config.extract.positions or value)}:
        return None
    if key == "prompts.limit":
        return (value,) if value < min(now or inf, most_of_a_label) else None
    if key == "prompts.limit_dual_use":
        return (value,) if value < (inf if now is None else now) else None
    if key == "dissociate.n_null_onset":
        least = ceil(1 / config.dissociate.alpha - 1e-9) - 1
        return (max(value, least),) if max(value, least) < now else None
    if isinstance(value, list):
        return (value,) if now is None or len(value) < len(now) else None
    return (value,) if value < now else None


def _needs_its_layers(config: RunConfig) -> bool:
    """Return whether a run writes at every later layer, or at layers that given directions name."""
    later = "later" in (config.dissociate.layers, config.steer.layers)
    return later or config.dissociate.directions is not None


def _every(stride: int, layers: tuple[int, ...], now: tuple[int, ...] | None) -> tuple[tuple[int, ...]] | None:
    """Return every so many-th of some layers, if that is fewer than now and enough."""
    kept = layers[stride - 1 :: stride]
    return (kept,) if LEAST_LAYERS <= len(kept) < len(now or layers) else None


def current(config: RunConfig, key: str) -> Any:
    """Return the value of a key in dotted form."""
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


# -- what it costs -----------------------------------------------------------------------------------------------------


def left_out(whole: RunConfig, cut: RunConfig, corpora: tuple[Corpus, Corpus], n_layers: int) -> tuple[str, ...]:
    """Return in sentences what a cut configuration leaves out, and the power that it costs.

    Args:
        corpora: the prompts before and after the cut.
    """
    return (*_smaller(whole, cut, n_layers), *_fewer_prompts(whole, cut, *corpora))


def _smaller(whole: RunConfig, cut: RunConfig, n_layers: int) -> Iterator[str]:
    before, after = whole.dissociate, cut.dissociate
    if before.variants and not after.variants:
        yield "Other forms of ablation are not tried."
    for key, what in (
        ("attributed", "requests of each label whose words are left out in turn"),
        ("patched", "pairs with the trigger word patched"),
        ("erased", "requests of each kind with the trigger word erased"),
    ):
        n, m = getattr(whole.triggers, key), getattr(cut.triggers, key)
        if m < n:
            yield f"At most {m} of {n} {what}; no verdict depends on them."
    if before.positions != after.positions:
        yield "Write directions are fitted at the last prompt token alone; one fitted earlier may be stronger."
    if whole.extract.layers != cut.extract.layers and cut.extract.layers:
        count = len(whole.extract.layers or range(n_layers))
        yield (
            f"{len(cut.extract.layers)} of {count} layers are read and written; what is decided between two of them "
            "is found at the next."
        )
    if after.n_null_onset < before.n_null_onset:
        powers = [null_power(BEYOND, n, before.alpha) for n in (after.n_null_onset, before.n_null_onset)]
        yield (
            f"{after.n_null_onset} of {before.n_null_onset} permuted-label directions: p is not below "
            f"{1 / (after.n_null_onset + 1):.2g}, and an effect that {BEYOND:.0%} of them exceed is shown with a "
            f"power of {powers[0]:.0%} instead of {powers[1]:.0%}."
        )
    if after.n_null_generation < before.n_null_generation:
        yield (
            f"{after.n_null_generation} of {before.n_null_generation} permuted-label directions are tried on "
            "generated answers; no verdict depends on them."
        )
    for key, what in (
        ("n_selection", "validation prompts of each class choose the write locus"),
        ("n_onset", "declined prompts of each behaviour give the onset effects"),
        ("n_side_effects", "prompts give each side effect"),
    ):
        n, m = getattr(before, key), getattr(after, key)
        if m < n:
            yield f"At most {m} instead of {n} {what}: standard errors grow by {np.sqrt(n / m) - 1:.0%}."
    if cut.generate.max_new_tokens < whole.generate.max_new_tokens:
        yield (
            f"Answers end after {cut.generate.max_new_tokens} instead of {whole.generate.max_new_tokens} tokens; a "
            "caution or a fact that comes later is not read."
        )
    if len(cut.steer.system_lines) < len(whole.steer.system_lines):
        yield "The dials are not compared with system lines."
    if whole.steer.one_dial and not cut.steer.one_dial:
        yield "Two dials are not compared with one."


def _fewer_prompts(whole: RunConfig, cut: RunConfig, before: Corpus, after: Corpus) -> Iterator[str]:
    if (few := cut.prompts.limit_dual_use) is not None and few != whole.prompts.limit_dual_use:
        yield f"At most {few} prompts of dual use; they enter no rate and no verdict."
    if len(after) == len(before):
        return
    yield f"{len(after)} of {len(before)} prompts."
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
