"""A run without its model: configuration, directory, prompts, and the files of earlier stages."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Int

from experiments.run.basis import chosen_basis
from experiments.run.behaviour import KINDS, Behaviour
from experiments.run.completion_file import Completion, is_right, read_completions
from experiments.run.config import WRITE_POSITION, RunConfig
from experiments.run.corpus import Corpus, check_parts, divide
from extract.capture_spec import THOUGHT_END
from extract.errors import UserError
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.prompts.sources import read_prompts
from extract.store.activation_store import ActivationStore

MOSTLY = 0.5  # share of the completions that think, above which a model thinks first


@dataclass
class RunInputs:
    """The inputs of one run that are files; each is read on first use."""

    config: RunConfig
    directory: Path
    reporter: Reporter = field(default_factory=Reporter)
    of: Self | None = None  # the run, if this is its `reading`, or it under a system line (experiments/elicited)

    @property
    def reading(self) -> Self:
        """This run on all its prompts, for what needs no answers; its own are those that the model answers."""
        if self.of is not None:
            return self
        self._reading.reporter = self.reporter
        return self._reading

    @cached_property
    def _reading(self) -> Self:
        return replace(self, of=self)

    @property
    def mirrored(self) -> Self:
        """This run with its two halves exchanged: prompts that directions are fitted on test those of the others."""
        other, corpus = copy.copy(self), self.corpus.mirrored
        other.__dict__ |= {"corpus": corpus, "behaviour": replace(self.behaviour, corpus=corpus, by_label=frozenset())}
        return other

    @cached_property
    def _every(self) -> list[Prompt]:
        """All prompts of the configuration, of which those to read are drawn, and those to answer."""
        return self.of._every if self.of is not None else read_prompts(self.config.prompts, self.config.seed)

    @cached_property
    def whole(self) -> Corpus:
        """All prompts of the configuration, divided into parts."""
        if self.of is not None:
            return self.of.whole
        return divide(self._every, self.config.prompts, self.config.seed)

    @cached_property
    def prompts(self) -> list[Prompt]:
        if self._limits == (None, None):  # of any labels, since what is only extracted needs no parts
            return self._every
        return [*self.whole.drawn(*self._limits, self.config.seed).prompts]

    @cached_property
    def corpus(self) -> Corpus:
        drawn = self.whole.drawn(*self._limits, self.config.seed)
        check_parts(drawn, self.config.prompts)
        return drawn

    @property
    def _limits(self) -> tuple[int | None, int | None]:
        generate = self.config.generate
        return (self.config.read_limit, None) if self.of is not None else (generate.limit, generate.limit_dual_use)

    @cached_property
    def answered(self) -> Int[np.ndarray, " answered"]:
        """The places of the answered prompts among all."""
        ids = {prompt.id for prompt in self.prompts}
        return np.flatnonzero([prompt.id in ids for prompt in self.reading.prompts])

    @cached_property
    def store(self) -> ActivationStore:
        """The run's activations; raises UserError if they are of other prompts."""
        if self.of is None:
            return self.reading.store.only(self.answered)
        store = ActivationStore(self.file("activations.h5"))
        if store.prompt_ids != tuple(prompt.id for prompt in self.prompts):
            given = self.config.prompts.described()
            raise UserError(
                f"{self.file('activations.h5')} holds other prompts than {given}; choose another directory with --out"
            )
        return store

    @cached_property
    def write_activations(self) -> Callable[..., np.ndarray]:
        """Activations by layer and position, by default the write position; each read once."""
        return cache(lambda layer, position=WRITE_POSITION: self.store.read(layer, position))

    @cached_property
    def completions(self) -> list[Completion]:
        return read_completions(self.file("completions.jsonl"))

    @property
    def thinks(self) -> bool:
        """Whether most judged completions have an answer after a thought."""
        judged = [bool(completion.thought) for completion in self.completions if completion.action is not None]
        return sum(judged) > MOSTLY * len(judged)

    @cached_property
    def behaviour(self) -> Behaviour:
        actions = np.array([completion.action for completion in self.completions], dtype=object)
        correct = [is_right(c, p) for c, p in zip(self.completions, self.prompts, strict=True)]
        plain, probed = Behaviour(self.corpus, actions, np.array(correct)), self.file("stages/probe.json")
        if self.config.extract.thought_tokens and self.of is None and self.thinks:
            plain = replace(plain, captured=self.store.present[self.store.positions.index(THOUGHT_END)])
        if self.of is not None:  # under a system line
            return replace(plain, basis="elicited")
        if not probed.is_file():
            return replace(plain, basis=chosen_basis(plain, self.config))
        chosen = json.loads(probed.read_bytes())
        writes = chosen.get("writes", {})
        by_label = frozenset(kind for kind in KINDS if writes.get(kind, {}).get("within_label") is False)
        return replace(plain, by_label=by_label, basis=chosen.get("basis", "wording"))

    def file(self, name: str) -> Path:
        return self.directory / name
