"""Candidate write directions: bypass, induce and KL of each, and the rule that chooses one.

Directions fitted on permuted labels (the null) are chosen by the same rule on the same prompts: a rule that fits the
real direction better would make it look special.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from experiments.probing.results import CandidateRecord, Discarded
from experiments.responses.divergence import Divergence
from probes.direction import Direction

RARE = 0.01  # probability of declining below which bypass values count as equal
FLOOR = float(np.log(RARE / (1 - RARE)))
TIE = 0.15  # differences of bypass or induce within this are ties, in log-odds
UNMEASURED = float("nan")
UNMEASURED_KL = Divergence(UNMEASURED, UNMEASURED, UNMEASURED, UNMEASURED)


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

    @classmethod
    def of(cls, direction: Direction, bypass: Float[np.ndarray, " decliners"], induce: float) -> Candidate:
        """Return a candidate whose KL is not measured yet."""
        return cls(direction, float(bypass.mean()), floored(bypass), float(induce), UNMEASURED_KL)

    @classmethod
    def unmeasured(cls, direction: Direction) -> Candidate:
        """Return a candidate of which nothing is measured yet."""
        return cls(direction, UNMEASURED, UNMEASURED, UNMEASURED, UNMEASURED_KL)

    def discarded(self, max_kl: float) -> Discarded | None:
        """Return the rule that a candidate breaks, or None. (Layers that are too deep are no candidates.)"""
        if not np.isfinite([self.bypass, self.induce, self.kl.worst_step]).all():
            return "not_finite"
        return "kl" if self.kl.worst_step > max_kl else "induce" if self.induce < 0 else None

    def record(self, max_kl: float) -> CandidateRecord:
        """Return the record for results.json, with None for values that are not finite."""
        values = {
            "bypass": self.bypass,
            "bypass_floored": self.bypass_floored,
            "induce": self.induce,
            "kl": self.kl.mean,
            "kl_max": self.kl.maximum,
            "kl_first_token": self.kl.first_token,
            "kl_worst_step": self.kl.worst_step,
        }
        finite = {name: value if np.isfinite(value) else None for name, value in values.items()}
        locus = self.direction.locus
        return CandidateRecord(layer=locus.layer, position=locus.position, **finite, discarded=self.discarded(max_kl))


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


def floored(bypass: Float[np.ndarray, " decliners"]) -> float:
    """Return the mean onset log-odds, with probabilities of declining below `RARE` raised to `RARE`."""
    return float(np.maximum(bypass, FLOOR).mean())
