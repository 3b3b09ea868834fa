"""Selection of the write direction by bypass, induce and KL of every candidate (Arditi et al., arXiv 2406.11717).

Candidates are the write directions fitted at each layer and prompt position, tried on validation prompts with the edits
of `steering.ablation`. Declining is measured by the log-odds of onset prefixes learned from the model's own
completions. Induce counts either way of declining: with one shared knob, adding a direction refuses requests and
abstains from questions, and requiring one of the two would decide beforehand what the dissociation tests.

Only the best by first-order effects are measured where these rank the candidates of the real direction as the exact
effects do, and those of one permuted labelling that is not part of the null too: agreement on the real direction alone
would favour it, since its search would then miss less than theirs. Real and null are searched by one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from experiments.probing.candidate import Candidate, Choice, floored, run_searches, search
from experiments.probing.results import KEPT, ScreeningRecord
from experiments.responses.divergence import Divergence, ForcedResponses, summary
from experiments.responses.first_order import Sensitivity
from experiments.responses.onset import EITHER, Onsets, OnsetScorer
from experiments.run.behaviour import ACTION_OF, Kind
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, site
from probes.direction import Direction
from steering.ablation import ablation, addition, amounts
from steering.ablation_variant import DEFAULT, Variant

LEAST_CORRELATION = 0.8  # between first-order and exact effects of the real direction's candidates


@dataclass(frozen=True)
class Screen:
    """Estimates bypass and induce of write directions to first order (`experiments.responses.first_order`)."""

    decliners: Sensitivity
    benign: Sensitivity
    variant: Variant

    @classmethod
    def of(
        cls, decliners: OnsetScorer, onset: str, benign: OnsetScorer, directions: Sequence[Direction], variant: Variant
    ) -> Screen:
        """Take the gradients at every layer that an ablation or addition of these directions edits.

        Args:
            onset: the way of declining of the decliners: refuse or abstain.
        """
        layers = sorted({layer for direction in directions for layer in amounts(direction, variant)})
        where, first = site(directions[0].locus.site), variant.tokens == "last_prompt"
        return cls(
            decliners.sensitivity(onset, where, layers, first_token=first),
            benign.sensitivity(EITHER, where, layers, first_token=first),
            variant,
        )

    def estimate(self, direction: Direction) -> tuple[float, float]:
        """Return the estimated bypass, floored as `candidate.floored` does, and the estimated induce, in log-odds."""
        change, r = np.zeros(len(self.decliners.log_odds)), direction.vector
        for layer, amount in amounts(direction, self.variant).items():
            effect = self.decliners.adding if self.variant.form == "additive" else self.decliners.setting
            change = change + effect(layer, r, amount)
        gap = direction.mean_positive - direction.mean_negative
        added = self.benign.log_odds + self.benign.adding(direction.locus.layer, r, gap)
        return floored(self.decliners.log_odds + change), float(added.mean())


def screening(screen: Screen, candidates: Sequence[Candidate]) -> ScreeningRecord:
    """Compare first-order with exact effects of measured candidates."""
    estimated = np.array([screen.estimate(candidate.direction) for candidate in candidates])
    exact = np.array([(candidate.bypass_floored, candidate.induce) for candidate in candidates])
    bypass, induce = (_correlation(estimated[:, i], exact[:, i]) for i in range(2))
    agrees = all(value is not None and value >= LEAST_CORRELATION for value in (bypass, induce))
    return ScreeningRecord(bypass_correlation=bypass, induce_correlation=induce, used=agrees and len(candidates) > KEPT)


def confirmed(of_real: ScreeningRecord, of_permuted: ScreeningRecord) -> ScreeningRecord:
    """Return the agreement on the real direction's candidates, used only if that on permuted ones is as good."""
    permuted = (of_permuted.bypass_correlation, of_permuted.induce_correlation)
    return of_real.model_copy(update={"used": of_real.used and of_permuted.used, "permuted": permuted})


def choose_known(candidates: Sequence[Candidate], max_kl: float, screen: Screen | None) -> Choice:
    """Return what a search chooses among candidates that are all measured already."""
    known = {id(candidate.direction): candidate for candidate in candidates}
    looked_up = search([candidate.direction for candidate in candidates], max_kl, screen.estimate if screen else None)
    return run_searches(
        [looked_up],
        lambda directions: [known[id(d)] for d in directions],
        lambda cs: [known[id(c.direction)] for c in cs],
    )[0]


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return Pearson's r over finite pairs; None where fewer than three are finite or one side does not vary."""
    finite = np.isfinite(a) & np.isfinite(b)
    if finite.sum() < 3 or min(np.ptp(a[finite]), np.ptp(b[finite])) == 0:
        return None
    return float(np.corrcoef(a[finite], b[finite])[0, 1])


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
