"""The plan of a run for `--dry-run` and `--budget`: its steps on a machine, with time, memory and disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from experiments.elicited.condition import abstains_rarely, asked_rows
from experiments.pipeline.cost import JUDGING_STEP, Batches, RunSize, Step, assumptions, minutes, steps, tokens
from experiments.pipeline.machine import A100, Footprint, Machine, footprint, gigabytes, measure_device, measured_speed
from experiments.run.behaviour import KINDS, write_samples
from experiments.run.config import RunConfig
from experiments.run.corpus import TESTED, Corpus, divide
from experiments.run.inputs import RunInputs
from experiments.run.organism_prompts import on_another_model, warning
from experiments.uncertainty.observation import questions
from extract.backoff import TOKENS_ON_CPU, TOKENS_ON_GPU
from extract.capture import tokens_to_read
from extract.capture_spec import THOUGHT
from extract.chat.render import Rendered, position_names, render
from extract.model.adapter import find_adapter
from extract.model.loading import load_tokenizer
from extract.model.source import resolve
from extract.progress import Reporter
from extract.prompts.groups import groups_apart
from extract.prompts.sources import read_prompts

PlanRecord = dict[str, Any]  # as --dry-run --json prints it
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
AFFORDED = 0.10  # share of a run's time that the judge `local` may take where `auto` is to choose


@dataclass(frozen=True)
class RunPrompts:
    """The prompts of a run as its cost depends on them: divided into parts, through the template."""

    whole: Corpus
    every: Sequence[Rendered]
    config: RunConfig  # says how many are answered, and how many read

    @cached_property
    def corpus(self) -> Corpus:
        """The answered prompts."""
        limits = self.config.generate
        return self.whole.drawn(limits.limit, limits.limit_dual_use, self.config.seed)

    @cached_property
    def rendered(self) -> list[Rendered]:
        return self._rendered(self.corpus)

    @cached_property
    def read(self) -> list[Rendered]:
        """Answered prompts and others."""
        return self._rendered(self.whole.drawn(self.config.read_limit, None, self.config.seed))

    @cached_property
    def read_tokens(self) -> int:
        """Tokens that are computed to read them."""
        return tokens_to_read(self.read, self.config.extract)

    def _rendered(self, corpus: Corpus) -> list[Rendered]:
        row_of = {prompt.id: row for prompt, row in zip(self.whole.prompts, self.every, strict=True)}
        return [row_of[prompt.id] for prompt in corpus.prompts]

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each prompt."""
        return [len(row.token_ids) for row in self.rendered]

    @cached_property
    def positions(self) -> tuple[str, ...]:
        return position_names(self.rendered)

    def size(self, n_layers: int, kinds: int = len(KINDS), answered: RunInputs | None = None) -> RunSize:
        """Return the numbers that the cost depends on, of a model that declines in so many ways, or as it did."""
        behaviour = None if answered is None else answered.behaviour
        corpus, test = self.corpus, self.corpus.within("test")
        unanswered = corpus.harmful | corpus.uncertain
        declinable = int((unanswered & corpus.within("validation", "test")).sum())
        absent = kinds < len(KINDS) if behaviour is None else abstains_rarely(behaviour)
        if behaviour is not None:
            unanswered = corpus.rated & ~behaviour.answered
            declined = {kind: len(behaviour.decliners(kind, "validation", "test")) for kind in KINDS}
            kinds = sum(write_samples(behaviour, kind) is not None and n > 0 for kind, n in declined.items())
            declinable = sum(declined.values())
        return RunSize(
            read=len(self.read),
            read_tokens=self.read_tokens / len(self.read),
            prompts=len(corpus),
            test=int((corpus.rated & test).sum()),
            harmful_test=int((corpus.harmful & test).sum()),
            prompt_tokens=sum(self.lengths) / len(self.lengths),
            n_layers=n_layers,
            positions=sum(name == "inst_last" or name.startswith("post_") for name in self.positions),
            questions=len(questions(corpus.prompts)),
            dual_use_test=int((test & ~corpus.rated).sum()),
            train=int(corpus.within("train").sum()),
            in_context=sum(len(prompt.messages) > 1 for prompt in corpus.prompts),
            declinable=declinable,
            kinds=kinds,
            unanswered=int((unanswered & corpus.within(*TESTED)).sum()),
            answered_sorts=2 if behaviour is None else 4,
            of_groups=corpus.share_of_groups(self.whole),
            elicited=len(asked_rows(corpus)) if absent else 0,
            lengths=None if answered is None else mean_lengths(answered),
            thought=0.0 if answered is None else float(np.mean([said.thought for said in answered.completions])),
        )


def mean_lengths(run: RunInputs) -> tuple[float, float]:
    """Return the tokens of a decline and of another answer, on average; where there are none, of all."""
    tokens, declining = np.array([len(said.token_ids) for said in run.completions]), run.behaviour.declining
    short, long = (tokens[rows].mean() if rows.any() else tokens.mean() for rows in (declining, ~declining))
    return float(short), float(long)


def model_shape(config: RunConfig, reporter: Reporter) -> tuple[PretrainedConfig, PreTrainedTokenizerBase]:
    """Return a model's configuration, and its tokenizer with the run's template, without loading weights.

    A GGUF file is dequantised into the cache if that was not done yet. Raises UserError if there is no such model.
    """
    wanted = config.model
    resolve(wanted.name, reporter)
    if wanted.adapter is not None:
        find_adapter(wanted.adapter)
    given = wanted.model_dump(include={"revision", "template", "template_args", "system"})
    return load_tokenizer(wanted.name, **given)


def width(config: RunConfig, machine: Machine) -> int:
    """Return the bytes of a number of the weights, as the run loads them on a machine."""
    return WIDTHS.get(config.model.dtype, machine.width)


@dataclass(frozen=True)
class RunEstimate:
    """What a run would do on this machine; without a GPU also on an A100, since such models rarely run without one."""

    config: RunConfig
    until: str
    given: RunPrompts
    model: Footprint
    machine: Machine

    @property
    def machines(self) -> dict[str, Machine]:
        """The machines that it is estimated for."""
        return {"here": self.machine} | ({} if self.machine.width == A100.width else {"on a GPU": A100})

    def plan(self, done: Collection[str] = (), kinds: int = len(KINDS), answered: RunInputs | None = None) -> Plan:
        """Return the plan without stages that are done, of a model that declines in so many ways, or as it did."""
        config, model, wanted = self.config, self.model, self.config.extract
        size = self.given.size(model.n_layers, kinds, answered)
        if answered is None:  # as long as half of the thoughts that are captured may be; without these not known
            size = replace(size, thought=wanted.thought_tokens / 2)
        said = wanted.response_tokens + (len(THOUGHT) if wanted.thought_tokens else 0)
        positions = len(wanted.positions or self.given.positions) + said
        streams = len(wanted.layers or range(model.n_layers)) * positions
        unstored = self.until == "uncertainty" or "extract" in done
        stored = 0 if unstored else streams * size.read * model.d_model
        longest = max(self.given.lengths) + config.generate.max_new_tokens
        return Plan(config, model, size, tuple(steps(config, size, self.until, done)), longest, stored)

    def time_with_fewer_kinds(self, done: Collection[str] = ()) -> str:
        """Return the time here of a model that declines in one way, or in neither; empty where it is the same."""
        times = [self.plan(done, kinds).time(self.machine) for kinds in (len(KINDS), 1, 0)]
        return f"{times[1]} if it declines in one way alone, {times[2]} if in neither" if len({*times}) > 1 else ""

    @property
    def warning(self) -> str:
        """That the prompts are an organism's and the model is another; empty if not."""
        return warning(self.config.model.name) if on_another_model(self.config, self.given.corpus.prompts) else ""

    @property
    def by_label(self) -> dict[str, tuple[int, int]]:
        """The prompts of each label, and the independent groups among them that intervals count."""
        prompts = self.given.corpus.prompts
        labelled = {
            label: [p for p in prompts if p.label == label] for label in dict.fromkeys(p.label for p in prompts)
        }
        return {label: (len(each), len(set(groups_apart(each).tolist()))) for label, each in labelled.items()}

    def record(self, directory: Path) -> PlanRecord:
        """Return everything: steps, tokens, memory, bytes on disk, and a range of time on each machine."""
        plan, config, lengths = self.plan(), self.config, self.given.lengths
        n_completions = sum(step.completions for step in plan.steps)
        responses = 0 if config.extract.thought_tokens else len(self.given.read) * config.extract.response_tokens
        return {
            "would run": f"{self.until} and the stages it reads from; what {directory} already holds unchanged is "
            "skipped",
            "model": config.model.name,
            "parameters": self.model.parameters,
            "prompts": len(self.given.read),
            "answered prompts": len(lengths),
            "independent groups": {label: groups for label, (_, groups) in self.by_label.items()},
            "prompt tokens": sum(lengths),
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


def estimate(config: RunConfig, until: str, reporter: Reporter, *, cut: bool = False) -> RunEstimate:
    """Read the prompts and the model's configuration, and measure the model on this machine if that was not done yet.

    `cut`: see `measured_speed`. UserError: invalid prompts, or there is no such model or device.
    """
    prompts = read_prompts(config.prompts, config.seed)
    shape, tokenizer = model_shape(config, reporter)
    corpus, rendered = divide(prompts, config.prompts, config.seed), [render(tokenizer, prompt) for prompt in prompts]
    machine = measure_device(config.model.device)
    size = footprint(shape, width(config, machine))
    speed = measured_speed(config, shape, tokenizer, size, machine, reporter, cut=cut)
    return RunEstimate(config, until, RunPrompts(corpus, rendered, config), size, speed)


def afforded_judge(config: RunConfig, until: str, reporter: Reporter) -> str:
    """Return the judge of `auto`: `local` up to `AFFORDED` of the time, else `rules`, and tell its cost."""
    share = judging_share(config, until, reporter)
    judge = "local" if share <= AFFORDED else "rules"
    reporter.say(f"the judge is {judge}; local takes about {share:.0%} of the time")
    return judge


def judging_share(config: RunConfig, until: str, reporter: Reporter) -> float:
    """Return the share of a run's time that the judge `local` would take, about."""
    planned = estimate(config.model_copy(update={"judge": "local"}), until, reporter)
    plan = planned.plan()
    judging = [step for step in plan.steps if step.name == JUDGING_STEP]
    return plan.minutes(planned.machine, judging)[1] / plan.minutes(planned.machine)[1]


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
        weights, cache, work = self._need(machine)
        return {
            "machine": machine.described(),
            "time": self.time(machine),
            "most of it": self.slowest(machine),
            "minutes": [round(end, 2) for end in self.minutes(machine)],
            "assuming": assumptions(machine),
            "memory": self.memory(machine),
            "weights, bytes": weights,
            f"keys and values of {self.config.generate.batch_size} completions, bytes": cache,
            "working space, bytes": work,
            "activations on disk, bytes": self.stored(machine),
        }

    def time(self, machine: Machine) -> str:
        """Return the range of time on a machine, as text."""
        return _range(self.minutes(machine))

    def slowest(self, machine: Machine) -> str:
        """Return the step that takes most of the time, and its time."""
        lasting = {step: self.minutes(machine, [step]) for step in self.steps}
        slowest = max(lasting, key=lasting.__getitem__)
        return f"{slowest.name}, {_range(lasting[slowest])}"

    def memory(self, machine: Machine) -> str:
        """Return whether the run fits into a machine's memory."""
        model, read = self._as_on(machine), self._batches(machine).tokens
        return describe_fit(model, self.config.generate.batch_size, self.longest, read, machine.memory)

    def worker(self, machine: Machine) -> str:
        """Return what each Ray worker takes on this machine and on GPUs, how many fit here, and what to ask for."""
        here, on_gpu = sum(self._need(machine)), sum(self._need(A100))
        room, gpus = machine.memory // here, -(-on_gpu // int(0.9 * A100.memory))
        fits = f"{room} fit into" if room else "none fits into"
        return (
            f"takes about {gigabytes(here)}, {fits} the {gigabytes(machine.memory)} here; {gigabytes(on_gpu)} on GPUs "
            f"of {gigabytes(A100.memory)}: --gpus-per-worker {gpus}"
            + (", its layers spread over them" if gpus > 1 else "")
        )

    def minutes(self, machine: Machine, listed: Sequence[Step] | None = None) -> tuple[float, float]:
        """Return the range of time on a machine of some steps, by default all."""
        batches = self._batches(machine)
        return minutes(self.steps if listed is None else listed, self._as_on(machine), machine, batches)

    def stored(self, machine: Machine) -> int:
        """Return the bytes of the stored activations, in `extract.store_dtype`, or by default the model's dtype."""
        return self.activations * WIDTHS.get(self.config.extract.store_dtype, self._as_on(machine).width)

    def _need(self, machine: Machine) -> tuple[int, int, int]:
        batch = self.config.generate.batch_size
        return self._as_on(machine).memory(batch, self.longest, self._batches(machine).tokens)

    def _as_on(self, machine: Machine) -> Footprint:
        return replace(self.model, width=width(self.config, machine))

    def _batches(self, machine: Machine) -> Batches:
        usual = TOKENS_ON_GPU if machine.width == A100.width else TOKENS_ON_CPU
        settings = self.config.generate
        read = self.config.extract.token_budget or usual
        size = self.size
        return Batches(read, settings.batch_size, size.prompt_tokens, settings.max_new_tokens, size.lengths)


def describe_fit(model: Footprint, batch: int, longest: int, tokens: int, memory: int) -> str:
    """Return as text whether the run fits into `memory` bytes, and the remedy if it does not."""
    wanted = sum(model.memory(batch, longest, tokens))
    used = f"{gigabytes(wanted)} of {gigabytes(memory)}"
    if wanted <= memory:
        return f"fits: about {used}"
    if model.weights > memory:
        return (
            f"does not fit: the weights alone take {gigabytes(model.weights)} of {gigabytes(memory)}; the rest is "
            "in slower memory, and the run takes many times longer than estimated here"
        )
    smaller = next((b for b in range(batch, 0, -1) if sum(model.memory(b, longest, tokens)) <= memory), 0)
    remedy = f"generate.batch_size={smaller} fits" if smaller else "set a smaller extract.token_budget"
    return f"does not fit at once: about {used}; batches become smaller during the run; {remedy}"


def _described(step: Step) -> str:
    parts = [f"{step.completions:,} completions"] if step.completions else []
    parts += [f"{step.passes:,} passes of {step.tokens_a_pass:.0f} tokens"] if step.passes else []
    parts += [f"{step.products:.1e} products"] if step.products else []
    parts += [f"{step.lasting:.0f} seconds on a CPU"] if step.lasting else []
    return " and ".join(parts) or "nothing"


def _range(minutes_: tuple[float, float]) -> str:
    """Return a range as text, in the unit of its upper end."""
    high = minutes_[1]
    per, unit = (60.0, "seconds") if high < 2 else (1.0, "minutes") if high < 120 else (1 / 60, "hours")
    low, high = (end * per for end in minutes_)
    return f"{low:.1f} to {high:.1f} {unit}" if low < 10 else f"{low:.0f} to {high:.0f} {unit}"
