"""Selection of the write direction by bypass, induce and KL of every candidate (docs/directions.md; arXiv 2406.11717).

Induce counts either way of declining: with one shared knob, adding a direction refuses requests and abstains from
questions, and requiring one of the two would decide beforehand what the dissociation tests. Real and null directions
are searched by one rule. A search asks for measurements and is sent the answers, so that many share forward passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from experiments.probing.results import KEPT, CandidateRecord, Discarded, ScreeningRecord
from experiments.responses.batched_edits import Trial
from experiments.responses.completions import Completer
from experiments.responses.divergence import Divergence, ForcedResponses, summary
from experiments.responses.onset import EITHER, Onsets, OnsetScorer, Sensitivity
from experiments.run.behaviour import ACTION_OF, Kind
from extract.capture_spec import WITHIN_THOUGHT
from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, site
from extract.progress import no_progress
from probes.direction import Direction
from scoring.actions import DECLINED
from steering.ablation import ablation, addition, amounts
from steering.ablation_variant import DEFAULT, Variant

LEAST_CORRELATION = 0.8  # between first-order and exact effects of the real direction's candidates
RARE = 0.01  # probability of declining below which bypass values count as equal
FLOOR = float(np.log(RARE / (1 - RARE)))
TIE = 0.15  # differences of bypass or induce within this are ties, in log-odds
UNMEASURED = float("nan")
UNMEASURED_KL = Divergence(UNMEASURED, UNMEASURED, UNMEASURED, UNMEASURED)
Steps = Callable[[int], None]


@dataclass(frozen=True)
class Candidate:
    """A write direction and the results of intervening with it on validation prompts; NaN until measured."""

    direction: Direction
    bypass: float = UNMEASURED  # mean onset log-odds of decliners under ablation: low is good
    bypass_floored: float = UNMEASURED  # the same, with probabilities of declining below `RARE` raised to `RARE`
    induce: float = UNMEASURED  # mean log-odds of declining either way, answered benign prompts under addition
    kl: Divergence = UNMEASURED_KL  # of benign prompts under ablation, over their first tokens
    likely: float = 0.0  # log-odds from which a decline counts as likely; see `likely_from`

    @property
    def induces(self) -> bool:
        return self.induce >= self.likely

    @property
    def place(self) -> int:
        """The place of its token along a thought, those of the prompt first."""
        position = self.direction.locus.position
        return 1 + WITHIN_THOUGHT.index(position) if position in WITHIN_THOUGHT else 0

    def discarded(self, max_kl: float) -> Discarded | None:
        """Return the rule that a candidate breaks, or None. (Layers that are too deep are no candidates.)"""
        if not np.isfinite([self.bypass, self.induce, self.kl.worst_step]).all():
            return "not_finite"
        return "kl" if self.kl.worst_step > max_kl else None if self.induces else "induce"

    def record(self, max_kl: float) -> CandidateRecord:
        return CandidateRecord(
            layer=self.direction.locus.layer,
            position=self.direction.locus.position,
            bypass=self.bypass,
            bypass_floored=self.bypass_floored,
            induce=self.induce,
            kl=self.kl.mean,
            kl_max=self.kl.maximum,
            kl_first_token=self.kl.first_token,
            kl_worst_step=self.kl.worst_step,
            discarded=self.discarded(max_kl),
        )


def select(candidates: Sequence[Candidate], max_kl: float) -> tuple[Candidate, bool]:
    """Return the usable candidate of least bypass, and whether there is one.

    Without a usable one, it is chosen among those that induce too little but are within the KL limit; without these, it
    is the candidate of least KL: an ablation that breaks the model opens with none of the onset prefixes, and so would
    bypass every decline. Permuted-label directions seldom induce declining, so this is the rule of most of them.

    A decliner below a probability of `RARE` is bypassed; how far below carries no information, so bypass is floored
    there. Among ties (within `TIE`) of bypass, those with the highest induce (again within `TIE`) are kept, and of
    these the earliest layer is chosen: there the decision is first written. In a thought the earliest token comes
    before both: what is read at later ones is also what the thought has said by then.
    """
    usable = [c for c in candidates if c.discarded(max_kl) is None]
    pool = usable or [c for c in candidates if c.discarded(max_kl) == "induce"]
    if not pool:
        return min(candidates, key=lambda c: np.nan_to_num(c.kl.worst_step, nan=np.inf)), False
    least = min(c.bypass_floored for c in pool)
    pool = [c for c in pool if c.bypass_floored <= least + TIE]
    pool = [c for c in pool if c.place == min(tied.place for tied in pool)]
    most = max(c.induce for c in pool)
    pool = [c for c in pool if c.induce >= most - TIE]
    return min(pool, key=lambda c: (c.direction.locus.layer, -c.induce)), bool(usable)


def likely_from(decliners: Float[np.ndarray, " decliners"], benign: Float[np.ndarray, " benign"]) -> float:
    """Return the log-odds at which a decline is half as likely as on prompts that the model declines, from theirs.

    That is 0 where it is sure of its declines, as Arditi et al. have it. A model may decline by the likeliest of many
    openings, none of which is likelier than not, and then no edit can reach 0, as its own declines do not. Where they
    hardly differ from benign prompts, it is half the way from those to them.
    """
    half = float(-np.log1p(2 * np.exp(-decliners.mean())))
    return min(0.0, max(half, float(decliners.mean() + benign.mean()) / 2))


def floored(bypass: Float[np.ndarray, " decliners"]) -> float:
    """Return the mean onset log-odds, with probabilities of declining below `RARE` raised to `RARE`."""
    return float(np.maximum(bypass, FLOOR).mean())


Choice = tuple[Candidate, bool]  # and whether it meets the selection rules
Estimate = Callable[[Direction], Candidate]  # to first order, its KL unmeasured
Question = tuple[Literal["effects", "kl"], Sequence[Candidate]]  # what a search wants to know next of which ones
Search = Generator[Question, list[Candidate], Choice]


def search(directions: Sequence[Direction], max_kl: float, estimate: Estimate | None = None) -> Search:
    """Choose among directions as `select` does; KL is measured only where the choice depends on it.

    With an estimate, only the best are measured, three at a time, the least estimated bypass first: first those that
    are estimated to induce declining, until one meets the rules, then the others, until one is within the limit of KL.
    """
    measured = list[Candidate]()
    for portion, promising in _portions(directions, estimate):
        tried = yield "effects", [Candidate(direction) for direction in portion]
        tried.sort(key=_bypass_floored)
        inducing = [c for c in tried if c.induces]
        with_kl = yield from _within_kl(inducing, max_kl)
        if not any(c.discarded(max_kl) is None for c in with_kl):
            with_kl += yield from _within_kl([c for c in tried if not c.induces], max_kl)
        measured += with_kl
        enough = (None,) if promising else (None, "induce")
        if any(candidate.discarded(max_kl) in enough for candidate in measured):
            break
    return select(measured, max_kl)


def run_searches(
    searches: Sequence[Search],
    effects: Callable[[Sequence[Direction]], list[Candidate]],
    kl: Callable[[Sequence[Candidate]], list[Candidate]],
) -> list[Choice]:
    """Return what each search chooses; the questions of all searches are answered together, by these measurements."""
    asked = {i: next(each) for i, each in enumerate(searches)}
    chosen: dict[int, Choice] = {}
    while asked:
        effects_first = any(about == "effects" for about, _ in asked.values())
        answered = {i: own for i, (about, own) in asked.items() if (about == "effects") == effects_first}
        together = [candidate for own in answered.values() for candidate in own]
        measured = iter(effects([c.direction for c in together]) if effects_first else kl(together))
        for i, own in answered.items():
            try:
                asked[i] = searches[i].send([next(measured) for _ in own])
            except StopIteration as end:
                chosen[i] = end.value
                del asked[i]
    return [chosen[i] for i in range(len(searches))]


def _portions(directions: Sequence[Direction], estimate: Estimate | None) -> Iterator[tuple[list[Direction], bool]]:
    """Yield the directions in the order of measuring, and whether each portion is estimated to induce declining."""
    if estimate is None:
        yield list(directions), False
        return
    estimated = sorted(map(estimate, directions), key=_bypass_floored)
    for promising in (True, False):
        group = [each.direction for each in estimated if each.induces == promising]
        for start in range(0, len(group), KEPT):
            yield group[start : start + KEPT], promising


def _bypass_floored(candidate: Candidate) -> float:
    return float(np.nan_to_num(candidate.bypass_floored, nan=np.inf))


def _within_kl(tried: Sequence[Candidate], max_kl: float) -> Generator[Question, list[Candidate], list[Candidate]]:
    """Measure the KL of candidates, the least bypass first, until the others cannot be chosen."""
    measured, least = list[Candidate](), np.inf
    for candidate in tried:
        if candidate.bypass_floored > least + TIE:
            break
        measured += yield "kl", [candidate]
        if measured[-1].discarded(max_kl) in (None, "induce"):
            least = min(least, candidate.bypass_floored)
    return measured


@dataclass(frozen=True)
class Screen:
    """Estimates bypass and induce of write directions to first order (`experiments.responses.onset`)."""

    decliners: Sensitivity
    benign: Sensitivity
    variant: Variant

    def estimate(self, direction: Direction) -> Candidate:
        """Return the candidate with its bypass and induce as estimated."""
        change, r = np.zeros(len(self.decliners.log_odds)), direction.vector
        for layer, amount in amounts(direction, self.variant).items():
            effect = self.decliners.adding if self.variant.form == "additive" else self.decliners.setting
            change = change + effect(layer, r, amount)
        gap = direction.mean_positive - direction.mean_negative
        added = self.benign.log_odds + self.benign.adding(direction.locus.layer, r, gap)
        own, likely = self.decliners.log_odds + change, likely_from(self.decliners.log_odds, self.benign.log_odds)
        return Candidate(direction, float(own.mean()), floored(own), float(added.mean()), likely=likely)


def screening(screen: Screen, candidates: Sequence[Candidate]) -> ScreeningRecord:
    """Compare first-order with exact effects of measured candidates."""
    estimates = [screen.estimate(candidate.direction) for candidate in candidates]
    estimated, exact = (np.array([(one.bypass_floored, one.induce) for one in of]) for of in (estimates, candidates))
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
    effects, kl = (lambda ds: [known[id(d)] for d in ds]), (lambda cs: [known[id(c.direction)] for c in cs])
    return run_searches([looked_up], effects, kl)[0]


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
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
    places: tuple[Sequence[int], Sequence[int]] = ((), ())  # of decliners and of benign prompts among the run's

    @property
    def steps(self) -> int:
        """The progress-bar steps of one candidate: one for each prompt and intervention."""
        return len(self.decliners) + 2 * len(self.benign)


class LocusSelection:
    """Tries one kind's write directions on its validation prompts; scorers serve hundreds of null directions."""

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

    def candidates(self, directions: Sequence[Direction], advance: Steps = no_progress) -> list[Candidate]:
        return self._with_kl(self._effects(directions, advance), advance)

    def choose_each(
        self, draws: Sequence[Sequence[Direction]], screen: Screen | None = None, advance: Steps = no_progress
    ) -> list[Choice]:
        """Return for each list of directions what `search` chooses; all lists share their forward passes."""
        estimate = None if screen is None else screen.estimate
        searches = [search(each, self._max_kl, estimate) for each in draws]
        return run_searches(searches, partial(self._effects, advance=advance), partial(self._with_kl, advance=advance))

    def screen(self, directions: Sequence[Direction]) -> Screen:
        """Return the first-order estimates of directions at the layers of these, from one backward pass a prompt."""
        layers = sorted({layer for direction in directions for layer in amounts(direction, self._variant)})
        where, first = site(directions[0].locus.site), self._variant.tokens == "last_prompt"
        decliners = self._decliners.sensitivity(self._onset, where, layers, first_token=first)
        return Screen(decliners, self._benign.sensitivity(EITHER, where, layers, first_token=first), self._variant)

    @cached_property
    def likely(self) -> float:
        """The log-odds from which a decline counts as likely."""
        return likely_from(self._decliners.log_odds()[self._onset], self._benign.log_odds()[EITHER])

    def _effects(self, directions: Sequence[Direction], advance: Steps = no_progress) -> list[Candidate]:
        measured = zip(directions, self._bypass(directions, advance), self._induce(directions, advance), strict=True)
        return [
            Candidate(d, float(own.mean()), floored(own), float(induced), likely=self.likely)
            for d, own, induced in measured
        ]

    def _with_kl(self, candidates: Sequence[Candidate], advance: Steps = no_progress) -> list[Candidate]:
        nats, steps = self._answers.divergences([self._ablation(c.direction) for c in candidates], advance)
        return [replace(c, kl=summary(each, steps)) for c, each in zip(candidates, nats, strict=True)]

    def _ablation(self, direction: Direction) -> list[Edit]:
        return ablation(direction, self._variant)

    def _bypass(self, directions: Sequence[Direction], advance: Steps) -> Float[np.ndarray, "directions decliners"]:
        return self._decliners.log_odds_each([self._ablation(d) for d in directions], advance)[self._onset]

    def _induce(self, directions: Sequence[Direction], advance: Steps) -> Float[np.ndarray, " directions"]:
        added = [addition(direction, self._variant) for direction in directions]
        return self._benign.log_odds_each(added, advance)[EITHER].mean(axis=1)


class FreeSelection(LocusSelection):
    """Tries write directions by what a model that thinks answers after the thought that it has under each of them.

    Bypass and induce are log-odds of declining that only take two values, those of `RARE` and of its opposite; KL is
    over the first tokens of the plain thought. What stops no decline is not asked whether it induces any.
    """

    def __init__(
        self, *given: Any, completer: Completer, places: tuple[Sequence[int], Sequence[int]], declines: Collection[str]
    ) -> None:
        """`declines`: the actions that count as declining in this kind's way."""
        super().__init__(*given)
        self._completer, (self._declined, self._answered), self._declines_as = completer, places, declines

    def screen(self, directions: Sequence[Direction]) -> Screen:
        raise UserError("a new thought has no first-order effect")

    @cached_property
    def likely(self) -> float:
        return 0.0

    def _effects(self, directions: Sequence[Direction], advance: Steps = no_progress) -> list[Candidate]:
        ablated = [self._ablation(direction) for direction in directions]
        bypass = self._declines(self._declined, ablated, self._declines_as, advance).mean(axis=1)
        induce, stops = np.full(len(directions), FLOOR), np.flatnonzero(bypass < -FLOOR)
        added = [addition(directions[i], self._variant) for i in stops.tolist()]
        induce[stops] = self._declines(self._answered, added, DECLINED, advance).mean(axis=1) if added else []
        return [
            Candidate(d, own, own, induced, likely=self.likely)
            for d, own, induced in zip(directions, bypass.tolist(), induce.tolist(), strict=True)
        ]

    def _declines(
        self, places: Sequence[int], trials: Sequence[Trial], counted: Collection[str], advance: Steps
    ) -> Float[np.ndarray, "trials prompts"]:
        done = self._completer.complete_trials(places, trials, advance)
        declines = np.array([[one.action in counted or one.action is None for one in each] for each in done])
        return np.where(declines, -FLOOR, FLOOR)
