"""A run with its model: the inputs of stages that measure."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from experiments.responses.completions import Completer
from experiments.responses.response_cache import ResponseCache
from experiments.responses.setting import Part, Pool, Result, Task, Thoughts
from experiments.run.inputs import RunInputs
from extract.chat.render import Rendered, refuse_too_long, remarks, render
from extract.extraction import versions
from extract.model.chat_model import ChatModel
from extract.model.kept_prompts import KeptPrompts
from extract.model.loading import open_model
from extract.model.source import resolve
from extract.prompts.prompt import prompts_hash
from judging.judge_by_name import open_judge


@dataclass
class LoadedRun(RunInputs):
    """One run with its model, which is loaded on first use."""

    pool: Pool | None = None  # workers with the same model; None: this process does everything

    @cached_property
    def model(self) -> ChatModel:
        """The configured model; loading may raise UserError."""
        if self.of is not None:
            return self.of.model
        resolve(self.config.model.name, self.reporter)  # a GGUF file is dequantised behind the run's own bar
        return open_model(ChatModel, self.config.model)

    @cached_property
    def rendered(self) -> list[Rendered]:
        """The prompts through the model's chat template, in file order; reports remarks on the template."""
        if self.of is None:
            return [self.reading.rendered[row] for row in self.answered]
        rendered = [render(self.model.tokenizer, prompt) for prompt in self.prompts]
        refuse_too_long(self.prompts, rendered, self.model.context)
        if self.directory == self.of.directory:  # not again of the same prompts under a line
            for line in remarks(self.prompts, rendered, merged=self.config.model.system == "merge"):
                self.reporter.say(line)
        return rendered

    @cached_property
    def kept(self) -> KeptPrompts:
        """The keys and values of the answered prompts, from whichever pass reads them first."""
        if self.of is not None and self.of.directory == self.directory:
            return self.of.kept
        return KeptPrompts(self.model, [row.token_ids for row in self.rendered])

    @cached_property
    def thoughts_before_dials(self) -> Thoughts:
        """The plain thoughts from whose end on dials act; none where these act from the prompt's end on."""
        asked = zip(self.rendered, self.completions, strict=True) if self.config.steer.at == "thought" else ()
        return {tuple(row.token_ids): said.token_ids[: said.thought] for row, said in asked if said.thought}

    @cached_property
    def completer(self) -> Completer:
        settings = self.config.generate
        return Completer(
            self.model,
            self.prompts,
            self.rendered,
            settings.max_new_tokens,
            settings.batch_size,
            judge=open_judge(self.config.judge, self.file("judgements.sqlite")),
            cache=ResponseCache(self.file("generations.sqlite"), self.model),
            say=self.reporter.say,
            pool=self.pool,
            settled_within=settings.settled_within,
            kept=self.kept,
            contrast=self.config.prompts.contrast is not None,
        )

    def map(self, task: Task[Part, Result], parts: Sequence[Part]) -> Iterator[tuple[int, Result]]:
        """Do the parts of a task by the pool's workers, or here, one after the other; see `Pool.map`."""
        if self.pool is not None:
            yield from self.pool.map(task, parts)
        else:
            yield from enumerate(map(task.prepare(self), parts))


@dataclass(frozen=True)
class RunDescription:
    """Versions, device, model and prompts of a run, under the manifest's keys."""

    versions: Mapping[str, str]
    device: str
    dtype: str
    seed: int
    model: Mapping[str, JsonValue]
    prompts: str  # their hash


def described(loaded: LoadedRun) -> RunDescription:
    """Describe a run; loads the model."""
    model, asked = loaded.model, loaded.config.model
    return RunDescription(
        versions=versions() | {"refusal-probes": importlib.metadata.version("refusal-probes")},
        device=str(model.device),
        dtype=str(model.dtype),
        seed=loaded.config.seed,
        model={"name": model.name, "revision": model.revision, "weights": model.fingerprint()}
        | asked.model_dump(mode="json", include={"adapter", "template", "template_args", "system"}),
        prompts=prompts_hash(loaded.reading.prompts),
    )
