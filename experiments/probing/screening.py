"""First-order estimates of candidates' bypass and induce, and whether they may replace exact measurements.

They may where they rank the candidates of the real direction as the exact effects do, and those of one permuted
labelling that is not part of the null too: agreement on the real direction alone would favour it, since its search
would then miss less than theirs. Real and null are searched by one rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.probing.candidate import Candidate, floored
from experiments.probing.results import KEPT, ScreeningRecord
from experiments.probing.search import Choice, run_searches, search
from experiments.responses.first_order import Sensitivity
from experiments.responses.onset import EITHER, OnsetScorer
from extract.model.edit import site
from probes.direction import Direction
from steering.ablation import amounts
from steering.ablation_variant import Variant

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


def screening(screen: Screen, found: Sequence[Candidate]) -> ScreeningRecord:
    """Compare first-order with exact effects of measured candidates."""
    estimated = np.array([screen.estimate(candidate.direction) for candidate in found])
    exact = np.array([(candidate.bypass_floored, candidate.induce) for candidate in found])
    bypass, induce = (_correlation(estimated[:, i], exact[:, i]) for i in range(2))
    agrees = all(value is not None and value >= LEAST_CORRELATION for value in (bypass, induce))
    return ScreeningRecord(bypass_correlation=bypass, induce_correlation=induce, used=agrees and len(found) > KEPT)


def confirmed(of_real: ScreeningRecord, of_permuted: ScreeningRecord) -> ScreeningRecord:
    """Return the agreement on the real direction's candidates, used only if that on permuted ones is as good."""
    permuted = (of_permuted.bypass_correlation, of_permuted.induce_correlation)
    return of_real.model_copy(update={"used": of_real.used and of_permuted.used, "permuted": permuted})


def choose_known(found: Sequence[Candidate], max_kl: float, screen: Screen | None) -> Choice:
    """Return what a search chooses among candidates that are all measured already."""
    known = {id(candidate.direction): candidate for candidate in found}
    looked_up = search([candidate.direction for candidate in found], max_kl, screen.estimate if screen else None)
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
