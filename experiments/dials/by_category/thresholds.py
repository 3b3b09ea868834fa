"""Chooses thresholds for each recognised category and certifies them on calibration prompts recognised as it.

Categories divide the prompts, so each one's thresholds change its own outcomes only and are chosen and certified like
those of all prompts (`operating_point`), on fewer of them. A dial is moved for a category that holds prompts it should
decline, unless its threshold is given. A category gets thresholds of its own only where every limit that its prompts
bear on is certified together; otherwise it keeps those of all prompts, and the result says what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.dials.by_category.read import OTHER, Recognised, fit_category_read
from experiments.dials.operating_point import Targets, choose_thresholds
from experiments.dials.policies import PolicyEvaluation
from experiments.dials.results import ByCategory, CategoryDials, ThresholdCertificate
from experiments.dials.surface import Risk, Surface, paired_changes
from experiments.dials.text import not_certified
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.corpus import Corpus
from probes.direction import Locus
from scoring.rates import JointRates, joint_rates
from steering.dial import CategoryThresholds, Threshold

TOO_FEW = "fewer than two categories have 20 training prompts of five groups to be recognised by"
LEAST_DECLINING = 10  # choice prompts that a dial should decline, for it to have a threshold of the category's own
NOT_MOVED = f"fewer than {LEAST_DECLINING} choice prompts to decline are recognised as it, or the threshold is given"
ALWAYS = "over_refusal"  # asked for even where no benign prompt is recognised as the category: one may be, later


@dataclass(frozen=True)
class ChosenByCategory:
    """What every prompt of the run would get, and the dials' thresholds by category."""

    actions: Shaped[np.ndarray, " prompts"]  # of every prompt, by look-up
    result: ByCategory
    applied: Mapping[Kind, CategoryThresholds] = field(default_factory=dict)  # empty: no category has its own


def choose_by_category(
    loaded: LoadedRun,
    policy: PolicyEvaluation,
    pooled: Mapping[Kind, float],
    declining: Mapping[Kind, Bool[np.ndarray, " prompts"]],
    locus: Locus,
    targets: Targets,
) -> ChosenByCategory:
    """Choose and certify thresholds by category.

    Args:
        pooled: the threshold of each dial for all prompts.
        declining: the prompts that each dial should decline.
        locus: where categories are recognised.
    """
    recognised = fit_category_read(loaded, locus)
    band = loaded.config.steer.band
    before = policy.table.actions_at(list(pooled.values()), band)
    if recognised is None:
        return ChosenByCategory(before, ByCategory(reason=TOO_FEW))
    given = [kind for kind in pooled if getattr(loaded.config.steer, f"{kind}_threshold") is not None]
    categories = CategoryChooser(policy, pooled, declining, targets, given).of(recognised)
    own = own_thresholds(pooled, categories)
    after = policy.table.actions_at(thresholds_of(pooled, own, recognised), band)
    share, right = recognised.right(loaded.corpus, loaded.corpus.rated & loaded.corpus.within("test"))
    test, read = np.flatnonzero(loaded.corpus.within("test")), recognised.read
    labels = [loaded.prompts[i].label for i in test]
    result = ByCategory(
        read_at=read.locus,
        confident=read.confident,
        recognised=share,
        right=None if np.isnan(right) else right,
        categories=categories,
        changes=paired_changes(labels, before[test], after[test], loaded.corpus.groups[test]),
    )
    applied = {kind: CategoryThresholds(read, taus) for kind, taus in own.items()} if any(own.values()) else {}
    return ChosenByCategory(after, result, applied)


def own_thresholds(
    pooled: Mapping[Kind, float], categories: Mapping[str, CategoryDials]
) -> dict[Kind, dict[str, float]]:
    """Return the thresholds of each dial by category, of those that have their own."""
    taus = [(kind, name, tau) for name, one in categories.items() for kind, tau in (one.thresholds or {}).items()]
    return {kind: {name: tau for of, name, tau in taus if of == kind} for kind in pooled}


def thresholds_of(
    pooled: Mapping[Kind, float], own: Mapping[Kind, Mapping[str, float]], recognised: Recognised
) -> list[Float[np.ndarray, " prompts"]]:
    """Return the threshold of each dial for every prompt: its category's where that has one."""
    thresholds = [Threshold(tau, own[kind]) for kind, tau in pooled.items()]
    return [np.array([threshold.of(name) for name in recognised.names]) for threshold in thresholds]


@dataclass(frozen=True)
class CategoryChooser:
    """What thresholds by category are chosen from: the table of all prompts, and the thresholds of all of them."""

    policy: PolicyEvaluation
    pooled: Mapping[Kind, float]
    declining: Mapping[Kind, Bool[np.ndarray, " prompts"]]  # the prompts that each dial should decline
    targets: Targets
    given: Sequence[Kind] = ()  # dials whose threshold the configuration gives

    def of(self, recognised: Recognised) -> dict[str, CategoryDials]:
        """Return the thresholds of each category that is recognised."""
        return {name: self._of_category(recognised.names == name) for name in recognised.read.names if name != OTHER}

    def _of_category(self, mine: Bool[np.ndarray, " prompts"]) -> CategoryDials:
        policy, corpus = self.policy, self.policy.inputs.corpus
        choice = {name: _among(risk, mine) for name, risk in policy.choice.items()}
        held_out = {name: _among(risk, mine) for name, risk in policy.certification.items()}
        chosen = mine & corpus.within("train", "validation")
        free = [kind for kind in self.pooled if kind not in self.given]
        moved = [kind for kind in free if int((self.declining[kind] & chosen).sum()) >= LEAST_DECLINING]
        limits = {
            name: limit
            for name, limit in self.targets.limits.items()
            if name == ALWAYS or len(choice[name].rows) or len(held_out[name].rows)
        }
        pooled = Surface.over(policy.table, [[tau] for tau in self.pooled.values()], policy.inputs.config.steer.band)
        test = np.flatnonzero(mine & corpus.within("test"))
        dials = CategoryDials(
            thresholds=None,
            recognised=_counts(corpus, mine & corpus.within("calibration")),
            test=self._rates(pooled, test),
            test_pooled=self._rates(pooled, test),
        )
        if not moved:
            return dials.model_copy(update={"why": [NOT_MOVED]})
        surface = self._surface(moved)
        point = choose_thresholds(
            surface, choice, held_out, corpus, replace(self.targets, limits=limits), policy.inputs.config.seed
        )
        lacking = [name for name in limits if name not in point.certificate.jointly]
        dials = dials.model_copy(update={"certificate": point.certificate})
        if lacking or not limits:
            return dials.model_copy(update={"why": _why(point.certificate, lacking)})
        own = surface.settings[point.index].tolist()
        own_surface = surface.at([point.index])
        return dials.model_copy(
            update={
                "thresholds": {kind: tau for kind, tau in zip(self.pooled, own, strict=True) if kind in moved},
                "test": self._rates(own_surface, test),
            }
        )

    def _rates(self, at: Surface, rows: Int[np.ndarray, " rows"]) -> JointRates:
        """Return the joint rates of some prompts at the first setting of a surface, by look-up."""
        corpus = self.policy.inputs.corpus
        actions = self.policy.table.actions[rows, at.outcome[0, rows]]
        labels = [corpus.prompts[i].label for i in rows]
        return joint_rates(labels, actions.tolist(), corpus.groups[rows])

    def _surface(self, moved: Sequence[Kind]) -> Surface:
        settings = self.policy.surface.settings
        tried = [
            np.unique(settings[:, axis]).tolist() if kind in moved else [tau]
            for axis, (kind, tau) in enumerate(self.pooled.items())
        ]
        return Surface.over(self.policy.table, tried, self.policy.inputs.config.steer.band)


def _among(risk: Risk, mine: Bool[np.ndarray, " prompts"]) -> Risk:
    kept = mine[risk.rows]
    return Risk(risk.name, risk.rows[kept], risk.failed[kept], risk.judged[kept])


def _counts(corpus: Corpus, among: Bool[np.ndarray, " prompts"]) -> dict[str, int]:
    labels = {"benign": corpus.benign, "harmful": corpus.harmful, "uncertain": corpus.uncertain}
    return {name: int((label & among).sum()) for name, label in labels.items()}


def _why(certificate: ThresholdCertificate, lacking: Sequence[str]) -> list[str]:
    if not lacking:
        return ["no limit is set that its prompts bear on"]
    failed = [name for name in lacking if not certificate.risks[name].certified]
    return [not_certified(name, certificate.risks[name]) for name in failed] or ["its limits hold alone, not together"]
