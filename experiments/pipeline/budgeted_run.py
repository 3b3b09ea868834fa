"""A run cut to fit a time: chooses what to leave out, by the speed of the model on this machine."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from experiments.pipeline.budget import budgeted, continued, fit_time, left_out
from experiments.pipeline.footprint import footprint, gigabytes
from experiments.pipeline.machine import measure_device
from experiments.pipeline.model_speed import LENGTHS, measure_model, measured_speed, with_speed
from experiments.pipeline.plan import RunPrompts, model_shape, plan_run, width
from experiments.probing.read_probes import check_folds
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import BudgetConfig, RunConfig
from experiments.run.corpus import Corpus, check_parts
from extract.chat.render import render
from extract.errors import UserError
from extract.progress import Reporter
from extract.prompts.sources import PromptsConfig, read_prompts

USED = 0.9  # share of the time that is planned for: the expectation is not exact


def fit_budget(config: RunConfig, directory: Path, until: str, minutes: float, reporter: Reporter) -> RunConfig:
    """Choose what a run leaves out, so that it ends within some minutes from now; tells what and what power it costs.

    A run that is continued in the same directory, with the same configuration and budget, keeps its choice.

    Raises:
        UserError: the weights do not fit into memory, or the least run does not fit into the time.
    """
    started, earlier = time.monotonic(), continued(config, directory, minutes, reporter)
    if earlier is not None:
        return earlier
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
