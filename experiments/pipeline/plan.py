"""The plan of a run for `--dry-run` and `--budget`: its steps on a machine, with time, memory and disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from experiments.pipeline.cost import Batches, RunSize, Step, assumptions, minutes, steps, tokens
from experiments.pipeline.footprint import Footprint, MemoryNeed, describe_fit, describe_worker, footprint, memory_need
from experiments.pipeline.machine import A100, Machine, measure_device, measured_speed
from experiments.run.behaviour import KINDS
from experiments.run.config import RunConfig
from experiments.run.corpus import Corpus, divide
from experiments.run.organism_prompts import on_another_model, warning
from experiments.uncertainty.observation import questions
from extract.backoff import TOKENS_ON_CPU, TOKENS_ON_GPU
from extract.chat.render import Rendered, position_names, render
from extract.model.adapter import find_adapter
from extract.model.loading import load_tokenizer
from extract.model.source import resolve
from extract.progress import Reporter
from extract.prompts.groups import groups_apart
from extract.prompts.prompt import Prompt
from extract.prompts.sources import read_prompts

PlanRecord = dict[str, Any]  # as --dry-run --json prints it
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class RunPrompts:
    """The prompts of a run as its cost depends on them: divided into parts, with their tokens and positions."""

    corpus: Corpus
    lengths: tuple[int, ...]  # tokens of each
    positions: tuple[str, ...]  # that some prompt has

    @classmethod
    def of(cls, config: RunConfig, prompts: Sequence[Prompt], rendered: Sequence[Rendered]) -> RunPrompts:
        """Divide the prompts as the run does."""
        positions = position_names(rendered)
        lengths = tuple(len(row.token_ids) for row in rendered)
        return cls(divide(prompts, config.prompts, config.seed), lengths, positions)

    @property
    def mean_tokens(self) -> float:
        """Tokens of a prompt, on average."""
        return sum(self.lengths) / len(self.lengths)

    def size(self, n_layers: int) -> RunSize:
        """Return the numbers that the cost depends on."""
        corpus, test = self.corpus, self.corpus.within("test")
        return RunSize(
            prompts=len(corpus),
            test=int((corpus.rated & test).sum()),
            harmful_test=int((corpus.harmful & test).sum()),
            prompt_tokens=self.mean_tokens,
            n_layers=n_layers,
            positions=sum(name == "inst_last" or name.startswith("post_") for name in self.positions),
            questions=len(questions(corpus.prompts)),
            dual_use_test=int((test & ~corpus.rated).sum()),
            train=int(corpus.within("train").sum()),
            in_context=sum(len(prompt.messages) > 1 for prompt in corpus.prompts),
            declinable=int(((corpus.harmful | corpus.uncertain) & corpus.within("validation", "test")).sum()),
        )


def model_shape(config: RunConfig, reporter: Reporter) -> tuple[PretrainedConfig, PreTrainedTokenizerBase]:
    """Return a model's configuration and its tokenizer with the run's template, without loading weights.

    A GGUF file is dequantised into the cache if that was not done yet.

    Raises:
        UserError: there is no such model or adapter.
    """
    wanted = config.model
    resolve(wanted.name, reporter)
    if wanted.adapter is not None:
        find_adapter(wanted.adapter)
    return load_tokenizer(
        wanted.name,
        revision=wanted.revision,
        template=wanted.template,
        template_args=wanted.template_args,
        system=wanted.system,
    )


def width(config: RunConfig, machine: Machine) -> int:
    """Return the bytes of a number of the weights, as the run loads them on a machine."""
    return WIDTHS.get(config.model.dtype, machine.width)


def plan_run(
    config: RunConfig,
    given: RunPrompts,
    model: Footprint,
    until: str,
    done: Collection[str] = (),
    kinds: int = len(KINDS),
) -> Plan:
    """Return the plan of a run up to a stage, without the stages that are done."""
    wanted, size = config.extract, replace(given.size(model.n_layers), kinds=kinds)
    streams = len(wanted.layers or range(model.n_layers)) * (
        len(wanted.positions or given.positions) + wanted.response_tokens + 2 * bool(wanted.thought_tokens)
    )
    stored = 0 if until == "uncertainty" or "extract" in done else streams * size.prompts * model.d_model
    longest = max(given.lengths) + config.generate.max_new_tokens
    return Plan(config, model, size, tuple(steps(config, size, until, done)), longest, stored)


@dataclass(frozen=True)
class RunEstimate:
    """What a run would do on this machine; without a GPU also on an A100, since such models rarely run without one."""

    config: RunConfig
    until: str
    prompts: Sequence[Prompt]
    given: RunPrompts
    model: Footprint
    machine: Machine

    @property
    def machines(self) -> dict[str, Machine]:
        """The machines that it is estimated for."""
        return {"here": self.machine} | ({} if self.machine.width == A100.width else {"on a GPU": A100})

    def plan(self, done: Collection[str] = (), kinds: int = len(KINDS)) -> Plan:
        """Return the plan, without the stages that are done.

        Args:
            kinds: ways of declining that the model shows often enough; known once it has answered.
        """
        return plan_run(self.config, self.given, self.model, self.until, done, kinds)

    def time_with_fewer_kinds(self, done: Collection[str] = ()) -> str:
        """Return the time here of a model that declines in one way, or in neither; empty where it is the same."""
        times = [self.plan(done, kinds).time(self.machine) for kinds in (len(KINDS), 1, 0)]
        return f"{times[1]} if it declines in one way alone, {times[2]} if in neither" if len({*times}) > 1 else ""

    @property
    def warning(self) -> str:
        """That the prompts are an organism's and the model is another; empty if not."""
        return warning(self.config.model.name) if on_another_model(self.config, self.prompts) else ""

    @property
    def by_label(self) -> dict[str, tuple[int, int]]:
        """The prompts of each label, and the independent groups among them that intervals count."""
        labelled: dict[str, list[Prompt]] = {}
        for prompt in self.prompts:
            labelled.setdefault(prompt.label, []).append(prompt)
        return {label: (len(each), len(set(groups_apart(each).tolist()))) for label, each in labelled.items()}

    def record(self, directory: Path) -> PlanRecord:
        """Return everything: steps, tokens, memory, bytes on disk, and a range of time on each machine."""
        plan, config, given = self.plan(), self.config, self.given
        n_completions = sum(step.completions for step in plan.steps)
        responses = len(self.prompts) * config.extract.generated
        return {
            "would run": f"{self.until} and the stages it reads from; what {directory} already holds unchanged is "
            "skipped",
            "model": config.model.name,
            "parameters": self.model.parameters,
            "prompts": len(self.prompts),
            "independent groups": {label: groups for label, (_, groups) in self.by_label.items()},
            "prompt tokens": sum(given.lengths),
            "steps, at most": {s.name: _described(s) for s in plan.steps},
            "completions, at most": n_completions,
            "generated tokens, at most": n_completions * config.generate.max_new_tokens + responses,
            "tokens, at most": tokens(plan.steps, plan.size, config.generate.max_new_tokens) + responses,
            "activations on disk, bytes": plan.stored(self.machine),
            "directory": str(directory),
            "time with fewer kinds of refusal": self.time_with_fewer_kinds(),
            **{where: plan.on(machine) for where, machine in self.machines.items()},
            **({"warning": self.warning} if self.warning else {}),
        }


def estimate(config: RunConfig, until: str, reporter: Reporter) -> RunEstimate:
    """Read the prompts and the model's configuration, and measure the model on this machine if that was not done yet.

    Raises:
        UserError: the prompts are not valid, or there is no such model or device.
    """
    prompts = read_prompts(config.prompts, config.seed)
    shape, tokenizer = model_shape(config, reporter)
    given = RunPrompts.of(config, prompts, [render(tokenizer, prompt) for prompt in prompts])
    machine = measure_device(config.model.device)
    size = footprint(shape, width(config, machine))
    return RunEstimate(
        config, until, prompts, given, size, measured_speed(config, shape, tokenizer, size, machine, reporter)
    )


@dataclass(frozen=True)
class Plan:
    """The steps of a run, with its configuration and model."""

    config: RunConfig
    model: Footprint
    size: RunSize
    steps: tuple[Step, ...]
    longest: int  # tokens of the longest prompt and its completion
    activations: int  # number of stored values

    def on(self, machine: Machine) -> PlanRecord:
        """Return the time and memory of the run on a machine."""
        batch, wanted = self.config.generate.batch_size, self._need(machine)
        return {
            "machine": machine.described(),
            "time": self.time(machine),
            "most of it": self.slowest(machine),
            "minutes": [round(end, 2) for end in self._minutes(self.steps, machine)],
            "assuming": assumptions(machine),
            "memory": self.memory(machine),
            "weights, bytes": wanted.weights,
            f"keys and values of {batch} completions, bytes": wanted.cache,
            "working space, bytes": wanted.work,
            "activations on disk, bytes": self.stored(machine),
        }

    def time(self, machine: Machine) -> str:
        """Return the range of time on a machine, as text."""
        return _range(self._minutes(self.steps, machine))

    def slowest(self, machine: Machine) -> str:
        """Return the step that takes most of the time, and its time."""
        slowest = max(self.steps, key=lambda step: self._minutes([step], machine))
        return f"{slowest.name}, {_range(self._minutes([slowest], machine))}"

    def memory(self, machine: Machine) -> str:
        """Return whether the run fits into a machine's memory."""
        model, read = self._as_on(machine), self._batches(machine).tokens
        return describe_fit(model, self.config.generate.batch_size, self.longest, read, machine.memory)

    def worker(self, machine: Machine) -> str:
        """Return what each Ray worker takes on this machine and on GPUs, and what to ask for."""
        return describe_worker(self._need(machine), machine.memory, self._need(A100), A100.memory)

    def most_minutes(self, machine: Machine) -> float:
        """Return the upper end of the range of time on a machine, in minutes."""
        return self._minutes(self.steps, machine)[1]

    def stored(self, machine: Machine) -> int:
        """Return the bytes of the stored activations, in `extract.store_dtype`, or by default the model's dtype."""
        return self.activations * WIDTHS.get(self.config.extract.store_dtype, self._as_on(machine).width)

    def _need(self, machine: Machine) -> MemoryNeed:
        batch = self.config.generate.batch_size
        return memory_need(self._as_on(machine), batch, self.longest, self._batches(machine).tokens)

    def _minutes(self, listed: Sequence[Step], machine: Machine) -> tuple[float, float]:
        return minutes(listed, self._as_on(machine), machine, self._batches(machine))

    def _as_on(self, machine: Machine) -> Footprint:
        return replace(self.model, width=width(self.config, machine))

    def _batches(self, machine: Machine) -> Batches:
        usual = TOKENS_ON_GPU if machine.width == A100.width else TOKENS_ON_CPU
        settings = self.config.generate
        read = self.config.extract.token_budget or usual
        return Batches(read, settings.batch_size, self.size.prompt_tokens, settings.max_new_tokens)


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
