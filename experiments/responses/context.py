"""What every stage of a run needs, opened when first asked for: prompts, model, store, behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from experiments.responses.behaviour import Behaviour
from experiments.responses.completions import Completion, Speaker, read_completions
from experiments.responses.generations import Generations
from experiments.run.config import WRITE_POSITION, RunConfig
from experiments.run.corpus import Corpus, make_corpus
from extract.chat.render import Rendered, remarks, render
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.prompts.sources import read_prompts
from extract.store.activation_store import ActivationStore
from judging.open_judge import open_judge
from scoring.actions import ANSWERED
from scoring.known_answer import states


@dataclass
class Context:
    """One run: its configuration, its directory, and what stages share."""

    config: RunConfig
    directory: Path
    reporter: Reporter = field(default_factory=Reporter)
    shared: bool = False  # other processes write shards of the same store

    @cached_property
    def prompts(self) -> list[Prompt]:
        return read_prompts(self.config.prompts, self.config.seed)

    @cached_property
    def corpus(self) -> Corpus:
        return make_corpus(self.prompts, self.config.prompts, self.config.seed)

    @cached_property
    def model(self) -> ChatModel:
        wanted = self.config.model
        return load_model(
            wanted.name,
            revision=wanted.revision,
            dtype=wanted.dtype,  # type: ignore[arg-type]
            device=wanted.device,
            backend=wanted.backend,  # type: ignore[arg-type]
            template=wanted.template,
            template_args=wanted.template_args,
            system=wanted.system,  # type: ignore[arg-type]
        )

    @property
    def probe_device(self) -> str:
        """Where probes are fitted: beside the model, on a CPU where its device knows no float64."""
        device = self.model.device
        return str(device) if device.type in ("cpu", "cuda") else "cpu"

    @cached_property
    def rendered(self) -> list[Rendered]:
        rendered = [render(self.model.tokenizer, prompt) for prompt in self.prompts]
        for line in remarks(self.prompts, rendered, merged=self.config.model.system == "merge"):
            self.reporter.say(line)
        return rendered

    @cached_property
    def speaker(self) -> Speaker:
        settings = self.config.generate
        return Speaker(
            self.model,
            self.prompts,
            self.rendered,
            settings.max_new_tokens,
            settings.batch_size,
            judge=open_judge(self.config.judge, self.file("judgements.sqlite")),
            generations=Generations(self.file("generations.sqlite"), self.model),
            say=self.reporter.say,
        )

    @cached_property
    def store(self) -> ActivationStore:
        store = ActivationStore(self.file("activations.h5"))
        if store.prompt_ids != tuple(prompt.id for prompt in self.prompts):
            given = self.config.prompts.described()
            raise UserError(f"{self.file('activations.h5')} holds other prompts than {given}")
        return store

    @cached_property
    def write_read(self) -> Callable[[int], np.ndarray]:
        """Activations at the write position by layer, each read once."""
        return cache(lambda layer: self.store.read(layer, WRITE_POSITION))

    @cached_property
    def behaviour(self) -> Behaviour:
        spoken = read_completions(self.file("completions.jsonl"))
        actions = np.array([completion.action for completion in spoken], dtype=object)
        correct = [is_right(c, p) for c, p in zip(spoken, self.prompts, strict=True)]
        return Behaviour(self.corpus, actions, np.array(correct))

    def file(self, name: str) -> Path:
        return self.directory / name


def is_right(completion: Completion, prompt: Prompt) -> bool:
    """Say whether a completion answers with the prompt's known answer."""
    return completion.action in ANSWERED and states(completion.completion, prompt.answer)
