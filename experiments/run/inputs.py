"""A run without its model: configuration, directory, prompts, and the files of earlier stages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from experiments.run.behaviour import KINDS, Behaviour
from experiments.run.completion_file import Completion, is_right, read_completions
from experiments.run.config import WRITE_POSITION, RunConfig
from experiments.run.corpus import Corpus, make_corpus
from extract.errors import UserError
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.prompts.sources import read_prompts
from extract.store.activation_store import ActivationStore


@dataclass
class RunInputs:
    """The inputs of one run that are files; each is read on first use."""

    config: RunConfig
    directory: Path
    reporter: Reporter = field(default_factory=Reporter)

    @cached_property
    def prompts(self) -> list[Prompt]:
        return read_prompts(self.config.prompts, self.config.seed)

    @cached_property
    def corpus(self) -> Corpus:
        return make_corpus(self.prompts, self.config.prompts, self.config.seed)

    @cached_property
    def store(self) -> ActivationStore:
        """The run's activations; raises UserError if they are of other prompts."""
        store = ActivationStore(self.file("activations.h5"))
        if store.prompt_ids != tuple(prompt.id for prompt in self.prompts):
            given = self.config.prompts.described()
            raise UserError(
                f"{self.file('activations.h5')} holds other prompts than {given}; choose another directory with --out"
            )
        return store

    @cached_property
    def write_activations(self) -> Callable[[int], np.ndarray]:
        """Activations at the write position by layer, each read once."""
        return cache(lambda layer: self.store.read(layer, WRITE_POSITION))

    @cached_property
    def completions(self) -> list[Completion]:
        return read_completions(self.file("completions.jsonl"))

    @cached_property
    def behaviour(self) -> Behaviour:
        actions = np.array([completion.action for completion in self.completions], dtype=object)
        correct = [is_right(c, p) for c, p in zip(self.completions, self.prompts, strict=True)]
        probed = self.file("stages/probe.json")
        writes = json.loads(probed.read_bytes()).get("writes", {}) if probed.is_file() else {}
        by_label = frozenset(kind for kind in KINDS if writes.get(kind, {}).get("within_label") is False)
        return Behaviour(self.corpus, actions, np.array(correct), by_label)

    def file(self, name: str) -> Path:
        return self.directory / name
