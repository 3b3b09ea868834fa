"""Dependence of the two write directions: their cosine, and whether ablating one changes the stream along the other.

The verdict does not use it: oblique directions may decide separately, and orthogonal ones may be one shared knob
(arXiv 2602.02132).
"""

from __future__ import annotations

import numpy as np

from experiments.dissociation.applicability import DissociationSetup
from experiments.dissociation.results import Dependence
from experiments.probing.results import ProbeResults
from experiments.run.behaviour import KINDS, Kind, write_samples
from experiments.run.inputs import RunInputs
from probes.direction import Locus, cosine
from probes.means import difference_in_means
from probes.statistics.seeds import named_rng

N_BOOTSTRAP = 199
NEAR = 0.2  # a cosine whose whole interval is beyond this is called oblique
LEVEL = 0.025  # of each of the two tests under ablation


def dependence(inputs: RunInputs, setup: DissociationSetup) -> Dependence | None:
    """Measure the dependence of the two write directions; None if there are not two.

    The cosine is taken at the normative direction's locus, where the epistemic direction is fitted again, because a
    cosine between layers has no meaning. Its interval is a bootstrap over groups of training prompts. The change that
    ablating one direction makes to the stream along the other is compared with its null (arXiv 2502.17420).
    """
    samples = {kind: write_samples(inputs.behaviour, kind) for kind in KINDS}
    if len(setup.directions) < len(KINDS) or not all(samples.values()):
        return None
    locus = setup.directions["normative"].locus
    cosines = _cosines(inputs, locus)
    low, high = (float(q) for q in np.quantile(cosines[1:], [0.025, 0.975]))
    own = inputs.config.dissociate.directions is None  # the probe stage measured the run's own directions only
    probed = ProbeResults.read(inputs.file("stages/probe.json")) if own else ProbeResults()
    under_ablation = probed.geometry.independence or {}
    moved = tuple(name for name, change in under_ablation.items() if (change.projection.p_null or 1.0) <= LEVEL)
    oblique = bool(low > NEAR or high < -NEAR)
    return Dependence(
        dependent=bool(oblique or moved),
        cosine=float(cosines[0]),
        cosine_ci=(low, high),
        principal_angle_degrees=float(np.degrees(np.arccos(min(1.0, abs(cosines[0]))))),
        locus=locus,
        oblique=oblique,
        moved_under_ablation=moved,
        ablation_measured=bool(under_ablation),
    )


def _cosines(inputs: RunInputs, locus: Locus) -> np.ndarray:
    """Return the cosine of the fitted directions, then those of bootstrap draws; (1 + N_BOOTSTRAP,) or fewer."""
    corpus, rng = inputs.corpus, named_rng(inputs.config.seed, "direction dependence")
    fits = [_GroupedFit(inputs, locus, kind) for kind in KINDS]
    groups = np.unique(np.concatenate([corpus.groups[fit.rows] for fit in fits]))
    draws = [groups, *(rng.choice(groups, size=len(groups)) for _ in range(N_BOOTSTRAP))]
    pairs = [[fit.vector(drawn) for fit in fits] for drawn in draws]
    return np.array([cosine(a, b) for a, b in pairs if a is not None and b is not None])


class _GroupedFit:
    """Fits one kind's write direction at one locus on any multiset of groups of samples."""

    def __init__(self, inputs: RunInputs, locus: Locus, kind: Kind) -> None:
        samples = write_samples(inputs.behaviour, kind)
        if samples is None:
            raise ValueError(f"a {kind} direction needs declined and answered samples; the model does not give both")
        self.rows, self._declined, self._strata = samples.rows, samples.declined, samples.strata
        self._X = inputs.store.read(locus.layer, locus.position)[samples.rows].astype(np.float64)
        groups = inputs.corpus.groups[samples.rows]
        self._members = {group: np.flatnonzero(groups == group) for group in np.unique(groups)}

    def vector(self, groups: np.ndarray) -> np.ndarray | None:
        """Return the difference in means (d_model,) of the samples of some groups; None if a class is missing."""
        index = np.concatenate([self._members.get(group, np.empty(0, dtype=int)) for group in groups])
        y = self._declined[index]
        return difference_in_means(self._X[index], y, self._strata[index]) if y.any() and not y.all() else None
