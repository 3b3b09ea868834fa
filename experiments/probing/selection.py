"""Selection of the write direction by bypass, induce and KL of every candidate (Arditi et al., arXiv 2406.11717).

Candidates are the write directions fitted at each layer and prompt position, tried on validation prompts with the edits
of `steering.ablation`. Declining is measured by the log-odds of onset prefixes learned from the model's own
completions. Induce counts either way of declining: with one shared knob, adding a direction refuses requests and
abstains from questions, and requiring one of the two would decide beforehand what the dissociation tests.

Where first-order effects rank the candidates as exact ones do (`screening`), only the best by first order are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from experiments.probing.candidate import Candidate
from experiments.probing.screening import Screen
from experiments.probing.search import Choice, run_searches, search
from experiments.responses.divergence import Divergence, ForcedResponses, summary
from experiments.responses.onset import EITHER, Onsets, OnsetScorer
from experiments.run.behaviour import ACTION_OF, Kind
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from probes.direction import Direction
from steering.ablation import ablation, addition
from steering.ablation_variant import DEFAULT, Variant


@dataclass(frozen=True)
class Validation:
    """The validation prompts on which candidates are tried."""

    decliners: Sequence[Rendered]
    benign: Sequence[Rendered]
    benign_responses: Sequence[Sequence[int]]  # the model's own, without any intervention

    @property
    def steps(self) -> int:
        """The progress-bar steps of one candidate: one for each prompt and intervention."""
        return len(self.decliners) + 2 * len(self.benign)


class LocusSelection:
    """Tries one kind's write directions on its validation prompts, with the run's variant of ablation.

    Scorers are made once, because the permutation null chooses hundreds of directions.
    """

    def __init__(
        self,
        model: ChatModel,
        onsets: Onsets,
        kind: Kind,
        validation: Validation,
        kl_tokens: int,
        max_kl: float,
        variant: Variant = DEFAULT,
    ) -> None:
        self._onset, self._max_kl, self._variant = ACTION_OF[kind], max_kl, variant
        self._decliners = OnsetScorer(model, validation.decliners, onsets)
        self._benign = OnsetScorer(model, validation.benign, onsets)
        self._answers = ForcedResponses(model, validation.benign, validation.benign_responses, kl_tokens)

    def candidates(
        self, directions: Sequence[Direction], advance: Callable[[int], None] = lambda steps: None
    ) -> list[Candidate]:
        """Measure bypass, induce and KL of each direction."""
        measured = self._effects(directions, advance)
        kls = self._divergences(directions, advance)
        return [replace(candidate, kl=kl) for candidate, kl in zip(measured, kls, strict=True)]

    def choose_each(self, draws: Sequence[Sequence[Direction]], screen: Screen | None = None) -> list[Choice]:
        """Return for each list of directions what `search` chooses; all lists share their forward passes."""

        def kl(candidates: Sequence[Candidate]) -> list[Candidate]:
            kls = self._divergences([candidate.direction for candidate in candidates])
            return [replace(candidate, kl=kl) for candidate, kl in zip(candidates, kls, strict=True)]

        estimate = None if screen is None else screen.estimate
        return run_searches([search(each, self._max_kl, estimate) for each in draws], self._effects, kl)

    def screen(self, directions: Sequence[Direction]) -> Screen:
        """Return the first-order estimates of directions at the layers of these, from one backward pass a prompt."""
        return Screen.of(self._decliners, self._onset, self._benign, directions, self._variant)

    def _effects(
        self, directions: Sequence[Direction], advance: Callable[[int], None] = lambda steps: None
    ) -> list[Candidate]:
        bypass, induce = self._bypass(directions, advance), self._induce(directions, advance)
        return [Candidate.of(*measured) for measured in zip(directions, bypass, induce, strict=True)]

    def _divergences(
        self, directions: Sequence[Direction], advance: Callable[[int], None] = lambda steps: None
    ) -> list[Divergence]:
        nats, steps = self._answers.divergences([self._ablation(d) for d in directions], advance)
        return [summary(each, steps) for each in nats]

    def _ablation(self, direction: Direction) -> list[Edit]:
        return ablation(direction, self._variant)

    def _bypass(
        self, directions: Sequence[Direction], advance: Callable[[int], None] = lambda steps: None
    ) -> Float[np.ndarray, "directions decliners"]:
        return self._decliners.log_odds_each([self._ablation(d) for d in directions], advance)[self._onset]

    def _induce(
        self, directions: Sequence[Direction], advance: Callable[[int], None] = lambda steps: None
    ) -> Float[np.ndarray, " directions"]:
        added = [addition(direction, self._variant) for direction in directions]
        return self._benign.log_odds_each(added, advance)[EITHER].mean(axis=1)
