"""Cost of a run for `--dry-run`, as upper limits by step: prompts read, completions, tokens, memory, disk and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.dials.counterfactuals import reachable_outcomes
from experiments.factors import removal
from experiments.factors.decision_change import LABELS
from experiments.factors.prompt_context import REMOVALS
from experiments.pipeline.duration import Batches, Step, assumptions, minutes
from experiments.pipeline.footprint import Footprint, describe_fit, footprint, memory_need
from experiments.pipeline.graph import in_order
from experiments.pipeline.machine import A100, Machine, measure_device
from experiments.pipeline.stages import stages_of
from experiments.probing.write_directions import write_layers
from experiments.run.behaviour import KINDS
from experiments.run.config import MOST_DIRECTIONS, RunConfig
from experiments.side_effects import measure as side_effects
from experiments.triggers import attributed_requests, patched_pairs
from experiments.triggers import erasure as trigger_erasure
from extract.extraction import TOKENS_ON_CPU, TOKENS_ON_GPU
from steering.ablation_variant import VARIANTS

KINDS_OF_EDIT = 3  # ablation, addition, and ablation of a random direction
ONSET_TOKENS = 6  # of a pass that continues a cached prompt: the last token and an onset prefix
BEGINNINGS = 4  # different beginnings of onset prefixes, one pass each
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class RunSize:
    """The numbers that a run's cost depends on."""

    prompts: int
    test: int  # rated ones
    harmful_test: int
    prompt_tokens: float  # of a prompt, on average
    n_layers: int
    positions: int  # prompt positions from the end of the instruction on
    questions: int = 0  # with a known answer, or uncertain
    dual_use_test: int = 0
    train: int = 0
    declinable: int = 0  # harmful or uncertain validation and test prompts


def steps(config: RunConfig, size: RunSize, until: str) -> list[Step]:
    """List the steps up to a stage with their highest cost: as if every prompt that may decline did decline."""
    listed: dict[str, Callable[[RunConfig, RunSize], list[Step]]] = {
        "extract": lambda c, s: [Step("activations", s.prompts, s.prompt_tokens)],
        "respond": lambda c, s: [Step("plain completions", completions=s.prompts)],
        "probe": _probe,
        "effects": _effects,
        "rank": _rank,
        "trigger_measures": _trigger_measures,
        "gate_open": lambda c, s: [Step("declined prompts with the gate open (remembered)")],
        "uncertainty": lambda c, s: [
            Step("sampled answers", completions=c.uncertainty.with_default_samples.samples * s.questions)
        ],
        "steer": _steer,
    }
    wanted = [stage.name for stage in in_order(stages_of(config), [until])]
    return [step for name in wanted if name in listed for step in listed[name](config, size)]


def _trigger_measures(config: RunConfig, size: RunSize) -> list[Step]:
    layers, attributed = len(config.extract.layers or range(size.n_layers)), len(LABELS) * attributed_requests.MOST
    scored = 2 * 2 * trigger_erasure.MOST * (layers + 1)  # two kinds of requests in two parts, at every layer
    return [
        Step("the last turn alone, no system line", completions=min(len(REMOVALS) * removal.MOST, size.prompts)),
        Step("pairs with the trigger word patched", 4 * patched_pairs.MOST * size.n_layers, size.prompt_tokens),
        _onsets("the trigger word erased", scored, 2 * min(removal.MOST, size.test)),
        Step("each word left out in turn", int(attributed * size.prompt_tokens), size.prompt_tokens),
    ]


def _steer(config: RunConfig, size: RunSize) -> list[Step]:
    dead_band, given = config.steer.band > 0, config.steer.system_lines
    two, one = (len(reachable_outcomes(n, dead_band=dead_band)) * size.prompts for n in (len(KINDS), 1))
    places, where = (1, "") if config.steer.actuator == "onset_bias" else (len(KINDS), ", at two places")
    return [
        Step("every outcome of the two gates", completions=two),
        Step(f"every outcome of one dial{where}", completions=places * one),
        Step("test prompts under system lines", completions=len(given) * size.test),
        Step("completions with the dials", completions=size.test + size.dual_use_test),
    ]


def _candidates(config: RunConfig, size: RunSize) -> int:
    chosen = config.dissociate.positions
    n_layers = len(config.extract.layers or range(size.n_layers))
    deepest = len(write_layers(size.n_layers, config.dissociate.deepest))
    return min(n_layers, deepest) * (len(chosen) if chosen else size.positions)


def _probe(config: RunConfig, size: RunSize) -> list[Step]:
    n = config.dissociate.n_selection
    tried = len(KINDS) * _candidates(config, size) * n
    return [
        _onsets("choosing write directions: onsets", 2 * tried),
        _steps_of_kl("choosing write directions: KL", tried, config),
    ]


def _effects(config: RunConfig, size: RunSize) -> list[Step]:
    given = config.dissociate
    draws, onset = len(KINDS) * given.n_null_onset, len(KINDS) * given.n_onset
    generated = len(KINDS) * min(given.n_null_generation, given.n_null_onset) * onset
    tried = draws * _candidates(config, size) * given.n_selection
    ways = len(KINDS) * (len(VARIANTS) + 1) if given.variants else 0
    besides = side_effects.cost(config, size.harmful_test, 1 + len(KINDS))
    return [
        Step("interventions on test prompts", completions=len(KINDS) * KINDS_OF_EDIT * size.test),
        _onsets("permuted-label null: bypass and induce", 2 * tried),
        _steps_of_kl("permuted-label null: KL", tried, config),
        _onsets("permuted-label null: onset effects", draws * onset),
        Step("permuted-label null: completions", completions=generated),
        _onsets("other ways of ablating", ways * onset, ways * (onset + given.n_onset)),
        Step("side effects", besides.texts_read, size.prompt_tokens + given.kl_tokens, besides.generations),
    ]  # fmt: skip


def _rank(config: RunConfig, size: RunSize) -> list[Step]:
    """Return the cost of fitting as many directions as may be fitted, each in three ways at every layer.

    They are ablated on training prompts once, on validation prompts three times and on test prompts once.
    """
    given = config.dissociate
    k = MOST_DIRECTIONS if given.rank == "auto" else given.rank
    layers = len(write_layers(size.n_layers, given.deepest)) if given.layers == "later" else 1
    fitted, fits = len(KINDS) * k, 3 * layers + k  # and the directions found, when they are fitted again
    return [
        Step("rank: completions", completions=k * (size.train + 3 * size.declinable)),
        _onsets("rank: choosing directions", 2 * fitted * fits * given.n_selection),
        *([Step("rank: streams", 2 * k * size.prompts, size.prompt_tokens)] if layers > 1 else []),
    ]


def _onsets(name: str, passes: int, completions: int = 0) -> Step:
    return Step(name, passes, ONSET_TOKENS, completions, distributions=ONSET_TOKENS, repeats=BEGINNINGS)


def _steps_of_kl(name: str, passes: int, config: RunConfig) -> Step:
    return Step(name, passes, config.dissociate.kl_tokens, distributions=config.dissociate.kl_tokens)


def tokens(listed: Sequence[Step], size: RunSize, max_new_tokens: int) -> int:
    """Return the largest number of tokens that all steps read and write."""
    read = sum(step.passes * step.tokens_a_pass for step in listed)
    return int(read + sum(step.completions for step in listed) * (size.prompt_tokens + max_new_tokens))


def estimate(config: RunConfig, directory: Path, until: str) -> dict[str, Any]:
    """Return what a run would do: steps, tokens, memory, bytes on disk, and a range of time on this machine.

    Without a GPU, the same is estimated for an A100, since such models rarely run without a GPU.
    """
    from experiments.run.corpus import divide
    from experiments.run.organism_prompts import on_another_model, warning
    from experiments.uncertainty.observation import questions
    from extract.chat.render import position_names, render
    from extract.model.loading import load_tokenizer
    from extract.model.source.adapter import find_adapter
    from extract.prompts.sources import read_prompts

    prompts, wanted, given = read_prompts(config.prompts, config.seed), config.model, config.extract
    if wanted.adapter is not None:
        find_adapter(wanted.adapter)
    shape, tokenizer = load_tokenizer(
        wanted.name, revision=wanted.revision, template=wanted.template, template_args=wanted.template_args,
        system=wanted.system,  # type: ignore[arg-type]
    )  # fmt: skip
    rendered = [render(tokenizer, prompt) for prompt in prompts]
    machine = measure_device(wanted.device)
    model = footprint(shape, WIDTHS.get(wanted.dtype, machine.width))
    roles = position_names(rendered, trigger=any(p.trigger for p in prompts))
    corpus = divide(prompts, config.prompts, config.seed)
    test = corpus.rated & corpus.within("test")
    lengths = [len(row.token_ids) for row in rendered]
    size = RunSize(
        len(prompts), int(test.sum()), int((corpus.harmful & test).sum()), sum(lengths) / len(lengths), model.n_layers,
        sum(name == "inst_last" or name.startswith("post_") for name in roles), len(questions(prompts)),
        int((corpus.within("test") & ~corpus.rated).sum()),
        int(corpus.within("train").sum()),
        int(((corpus.harmful | corpus.uncertain) & corpus.within("validation", "test")).sum()),
    )  # fmt: skip
    streams = len(given.layers or range(model.n_layers)) * (len(given.positions or roles) + given.response_tokens)
    streams = 0 if until == "uncertainty" else streams
    listed = steps(config, size, until)
    n_completions, responses = sum(step.completions for step in listed), len(prompts) * given.response_tokens
    longest = max(lengths) + config.generate.max_new_tokens
    plan = Plan(config, model, listed, size.prompt_tokens, longest, streams * len(prompts) * model.d_model)
    return {
        "would run": f"{until} and the stages it reads from; what {directory} already holds unchanged is skipped",
        "model": wanted.name,
        "parameters": model.parameters,
        "prompts": len(prompts),
        "prompt tokens": sum(lengths),
        "steps, at most": {s.name: _described(s) for s in listed},
        "completions, at most": n_completions,
        "generated tokens, at most": n_completions * config.generate.max_new_tokens + responses,
        "tokens, at most": tokens(listed, size, config.generate.max_new_tokens) + responses,
        "activations on disk, bytes": plan.stored(machine),
        "directory": str(directory),
        "here": plan.on(machine),
        **({} if machine.width == A100.width else {"on a GPU": plan.on(A100)}),
        **({"warning": warning(wanted.name)} if on_another_model(config, prompts) else {}),
    }


@dataclass(frozen=True)
class Plan:
    """The steps of a run, with its configuration and model."""

    config: RunConfig
    model: Footprint
    steps: Sequence[Step]
    prompt_tokens: float
    longest: int  # tokens of the longest prompt and its completion
    activations: int  # number of stored values

    def on(self, machine: Machine) -> dict[str, Any]:
        """Return the time and memory of the run on a machine."""
        model, batch, read = self._as_on(machine), self.config.generate.batch_size, self._batches(machine).tokens
        wanted = memory_need(model, batch, self.longest, read)
        slowest = max(self.steps, key=lambda step: self._minutes([step], machine))
        return {
            "machine": machine.described(),
            "time": _range(self._minutes(self.steps, machine)),
            "most of it": f"{slowest.name}, {_range(self._minutes([slowest], machine))}",
            "minutes": [round(end, 2) for end in self._minutes(self.steps, machine)],
            "assuming": assumptions(machine),
            "memory": describe_fit(model, batch, self.longest, read, machine.memory),
            "weights, bytes": wanted.weights,
            f"keys and values of {batch} completions, bytes": wanted.cache,
            "working space, bytes": wanted.work,
            "activations on disk, bytes": self.stored(machine),
        }

    def stored(self, machine: Machine) -> int:
        """Return the bytes of the stored activations, in `extract.store_dtype`, or by default the model's dtype."""
        return self.activations * WIDTHS.get(self.config.extract.store_dtype, self._as_on(machine).width)

    def _minutes(self, listed: Sequence[Step], machine: Machine) -> tuple[float, float]:
        return minutes(listed, self._as_on(machine), machine, self._batches(machine))

    def _as_on(self, machine: Machine) -> Footprint:
        return replace(self.model, width=WIDTHS.get(self.config.model.dtype, machine.width))

    def _batches(self, machine: Machine) -> Batches:
        usual = TOKENS_ON_GPU if machine.width == A100.width else TOKENS_ON_CPU
        settings = self.config.generate
        read = self.config.extract.token_budget or usual
        return Batches(read, settings.batch_size, self.prompt_tokens, settings.max_new_tokens)


def _described(step: Step) -> str:
    parts = [f"{step.completions:,} completions"] if step.completions else []
    parts += [f"{step.passes:,} passes of {step.tokens_a_pass:.0f} tokens"] if step.passes else []
    return " and ".join(parts) or "nothing"


def _range(minutes_: tuple[float, float]) -> str:
    """Return a range as text, in the unit of its upper end."""
    high = minutes_[1]
    per, unit = (60.0, "seconds") if high < 2 else (1.0, "minutes") if high < 120 else (1 / 60, "hours")
    low, high = (end * per for end in minutes_)
    return f"{low:.1f} to {high:.1f} {unit}" if low < 10 else f"{low:.0f} to {high:.0f} {unit}"
