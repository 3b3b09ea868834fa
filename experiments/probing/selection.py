"""Selection of the write direction by bypass, induce and KL of every candidate (Arditi et al., arXiv 2406.11717).

Candidates are the write directions fitted at each layer and prompt position, tried on validation prompts with the edits
of `steering.ablation`. Declining is measured by the log-odds of onset prefixes learned from the model's own
completions. Induce counts either way of declining: with one shared knob, adding a direction refuses requests and
abstains from questions, and requiring one of the two would decide beforehand what the dissociation tests.

Directions fitted on permuted labels (the null) are chosen by the same rule on the same prompts: a rule that fits the
real direction better would make it look special.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from experiments.probing.results import CandidateRecord, Discarded
from experiments.responses.divergence import Divergence, ForcedResponses, summary
from experiments.responses.onset import EITHER, Onsets, OnsetScorer
from experiments.run.behaviour import ACTION_OF, Kind
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from probes.direction import Direction
from steering.ablation import ablation, addition
from steering.ablation_variant import DEFAULT, Variant

RARE = 0.01  # probability of declining below which bypass values count as equal
FLOOR = float(np.log(RARE / (1 - RARE)))
TIE = 0.15  # differences of bypass or induce within this are ties, in log-odds
UNMEASURED = Divergence(float("nan"), float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Candidate:
    """A write direction and the results of intervening with it on validation prompts."""

    direction: Direction
    bypass: float  # mean onset log-odds of decliners under ablation: low is good
    bypass_floored: float  # the same, with probabilities of declining below `RARE` raised to `RARE`
    induce: (
        float  # mean onset log-odds of declining in either way, answered benign prompts under addition: high is good
    )
    kl: Divergence  # of benign prompts under ablation, over the first tokens of the model's own responses

    def discarded(self, max_kl: float) -> Discarded | None:
        """Return the rule that a candidate breaks, or None. (Layers that are too deep are no candidates.)"""
        if not np.isfinite([self.bypass, self.induce, self.kl.worst_step]).all():
            return "not_finite"
        return "kl" if self.kl.worst_step > max_kl else "induce" if self.induce < 0 else None

    def record(self, max_kl: float) -> CandidateRecord:
        """Return the record for results.json, with None for values that are not finite."""
        values = {
            "bypass": self.bypass, "bypass_floored": self.bypass_floored, "induce": self.induce, "kl": self.kl.mean,
            "kl_max": self.kl.maximum, "kl_first_token": self.kl.first_token, "kl_worst_step": self.kl.worst_step,
        }  # fmt: skip
        finite = {name: value if np.isfinite(value) else None for name, value in values.items()}
        locus = self.direction.locus
        return CandidateRecord(layer=locus.layer, position=locus.position, **finite, discarded=self.discarded(max_kl))


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
        bypass, induce = self._bypass(directions, advance), self._induce(directions, advance)
        nats, steps = self._answers.divergences([self._ablation(d) for d in directions], advance)
        kls = [summary(each, steps) for each in nats]
        return [_candidate(*measured) for measured in zip(directions, bypass, induce, kls, strict=True)]

    def choose(self, directions: Sequence[Direction]) -> tuple[Candidate, bool]:
        """Return `select` of these directions' candidates; KL is measured only where the choice depends on it."""
        measured = zip(directions, self._bypass(directions), self._induce(directions), strict=True)
        tried = sorted((_candidate(d, b, i, UNMEASURED) for d, b, i in measured), key=_order)
        enough, little = ([c for c in tried if (c.induce >= 0) == wanted] for wanted in (True, False))
        found = self._within_kl(enough)
        if not any(c.discarded(self._max_kl) is None for c in found):
            found += self._within_kl(little)
        return select(found, self._max_kl)

    def _within_kl(self, tried: Sequence[Candidate]) -> list[Candidate]:
        """Measure the KL of candidates, the least bypass first, until the others cannot be chosen."""
        found, least = list[Candidate](), np.inf
        for candidate in tried:
            if candidate.bypass_floored > least + TIE:
                break
            nats, steps = self._answers.divergences([self._ablation(candidate.direction)])
            found.append(replace(candidate, kl=summary(nats[0], steps)))
            if found[-1].discarded(self._max_kl) in (None, "induce"):
                least = min(least, candidate.bypass_floored)
        return found

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


def _candidate(direction: Direction, bypass: np.ndarray, induce: float, kl: Divergence) -> Candidate:
    return Candidate(direction, float(bypass.mean()), _floored(bypass), float(induce), kl)


def _floored(bypass: np.ndarray) -> float:
    return float(np.maximum(bypass, FLOOR).mean())


def _order(candidate: Candidate) -> float:
    return float(np.nan_to_num(candidate.bypass_floored, nan=np.inf))


def select(found: Sequence[Candidate], max_kl: float) -> tuple[Candidate, bool]:
    """Return the usable candidate of least bypass, and whether there is one.

    Without a usable one, it is chosen among those that induce too little but are within the KL limit; without these, it
    is the candidate of least KL: an ablation that breaks the model opens with none of the onset prefixes, and so would
    bypass every decline. Permuted-label directions seldom induce declining, so this is the rule of most of them.

    A decliner below a probability of `RARE` is bypassed; how far below carries no information, so bypass is floored
    there. Among ties (within `TIE`) of bypass, those with the highest induce (again within `TIE`) are kept, and of
    these the earliest layer is chosen: there the decision is first written.
    """
    usable = [c for c in found if c.discarded(max_kl) is None]
    pool = usable or [c for c in found if c.discarded(max_kl) == "induce"]
    if not pool:
        return min(found, key=lambda c: np.nan_to_num(c.kl.worst_step, nan=np.inf)), False
    least = min(c.bypass_floored for c in pool)
    pool = [c for c in pool if c.bypass_floored <= least + TIE]
    most = max(c.induce for c in pool)
    pool = [c for c in pool if c.induce >= most - TIE]
    return min(pool, key=lambda c: (c.direction.locus.layer, -c.induce)), bool(usable)
