"""Thresholds of the dials: chosen on the choice prompts, certified on the calibration part; test is used for neither.

The choice prompts are train (with cross-fitted scores) and validation. On them all pairs of thresholds are ordered by
safety margin, the largest first: the pair whose worst rate is the smallest share of its limit. Each rate is taken at
its upper confidence limit over groups, because a rate of zero is less certain in few groups than in many. This order is
the path of the certification (`certify`): it does not depend on the certification prompts and stops at the first pair
that fails, so the certificate holds with the given confidence. Without costs the dials get the first pair of the path;
with costs, the cheapest certified pair, its cost estimated on the choice prompts. A limit that so few prompts could not
certify even without a failure is left out of the path and reported.

If the first pair fails, no limits are certified together. Without costs the dials keep this pair; with costs they take
the cheapest of the pairs that meet every limit on the choice prompts (of all pairs, if none does). Either was fixed
without the certification prompts, so each limit is certified alone at it, each with the given confidence. Limits that
no setting meets on the choice prompts are recorded with the best rate that was reached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.dials.results import LARGEST_MARGIN, RiskCertificate, ThresholdCertificate
from experiments.dials.surface import AXES, COST_KEYS, Columns, Risk, Surface, comparable, expected_cost, rates_of
from experiments.run.corpus import Corpus
from probes.statistics.certify import (
    allowed_failures,
    best_reachable,
    certified_prefix,
    n_at_rate,
    n_needed,
    one_per_group,
    upper_limit,
)
from probes.statistics.intervals import effective_groups

CERTIFIED_ON = "calibration"
NEEDS = {  # the dial without which a risk is out of reach
    "missed_harm": "normative",
    "overconfidence": "epistemic",
    "uncertain_refused": "normative",
}


def reachable_risks(wanted: Mapping[str, float], dials: Collection[str]) -> dict[str, float]:
    """Keep the limits of the risks that the available dials can lower.

    Without an epistemic dial, overconfidence falls only where uncertain questions are refused, at the price of refused
    benign prompts.
    """
    return {name: value for name, value in wanted.items() if NEEDS.get(name) in (None, *dials)}


def reachable_costs(costs: Mapping[str, float], dials: Collection[str]) -> dict[str, float]:
    """Keep the costs of the mistakes that the available dials can save.

    The cost `overconfidence` is paid for each uncertain prompt answered firmly or refused: refusing saves nothing.
    """
    axes = dict(zip(COST_KEYS, AXES, strict=True))
    return {key: cost for key, cost in costs.items() if reachable_risks({axes[key]: cost}, dials)}


@dataclass(frozen=True)
class Targets:
    """Limits, confidence and costs that the thresholds are chosen for; see `steer` in the configuration."""

    limits: Mapping[str, float]  # of each risk that has one
    confidence: float
    costs: Mapping[str, float] | None  # of COST_KEYS


def choose_thresholds(
    surface: Surface,
    choice: Mapping[str, Risk],
    certification: Mapping[str, Risk],
    corpus: Corpus,
    targets: Targets,
    seed: int,
) -> tuple[int, ThresholdCertificate]:
    """Choose a setting on the choice prompts and certify it on the held-out certification prompts.

    Args:
        choice, certification: every risk, counted on the choice prompts and on the certification prompts.

    Returns:
        The setting, as an index into the surface, and its certificate.
    """
    limits, confidence = targets.limits, targets.confidence
    rates = rates_of(surface, choice)
    independent = {name: effective_groups(corpus.groups_among(risk.rows)) for name, risk in choice.items()}
    order = _path(surface, rates, independent, targets)
    within = np.asarray(np.all([comparable(rates[name]) <= limit for name, limit in limits.items()], axis=0))
    drawn = {
        name: one_per_group(r.rows, corpus.groups_among(r.rows), seed) if len(r.rows) else r.rows
        for name, r in certification.items()
    }
    n = {name: len(rows) for name, rows in drawn.items()}
    asked = [name for name in limits if allowed_failures(n[name], limits[name], confidence) >= 0]
    failures = {name: surface.failures(certification[name], drawn[name]) for name in certification}
    passed = 0
    if asked:
        tried = np.stack([failures[name][order] for name in asked], axis=1)
        passed = certified_prefix(tried, [n[k] for k in asked], [limits[k] for k in asked], confidence)
    index, rule = _chosen(surface, order, within, rates, targets, passed)

    def certificate(name: str) -> RiskCertificate:
        """Return the certificate of one risk, with the n that its limit would need."""
        failed, limit, on_choice = int(failures[name][index]), limits.get(name), rates[name]
        at_most = upper_limit(failed, n[name], confidence)
        return RiskCertificate(
            limit=limit,
            certified=limit is not None and (name in asked if passed else at_most <= limit),
            failures=failed,
            n=n[name],
            at_most=at_most,
            best_reachable=best_reachable(n[name], confidence),
            n_needed=None if limit is None else n_needed(limit, confidence),
            n_at_this_rate=None
            if limit is None
            else n_at_rate(failed / n[name] if n[name] else 0.0, limit, confidence),
            best_on_choice=None if np.isnan(on_choice).all() else float(np.nanmin(on_choice)),
        )

    return index, ThresholdCertificate(
        rule=rule,
        part=CERTIFIED_ON,
        confidence=confidence,
        jointly=asked if passed else [],
        settings_certified=passed,
        settings_tried=len(order),
        settings_within_limits=int(within.sum()) if limits else len(order),
        risks={name: certificate(name) for name in certification},
    )


def _path(
    surface: Surface, rates: Columns, n_groups: Mapping[str, float], targets: Targets
) -> Int[np.ndarray, " settings"]:
    """Order the settings, the largest safety margin first; ties by the sum of the shares, then by nearness to 0.5."""
    if not targets.limits:
        return np.lexsort((surface.off, expected_cost(rates, targets.costs or dict.fromkeys(COST_KEYS, 1.0))))

    def highest(name: str) -> Float[np.ndarray, " settings"]:
        """Return the upper confidence limit of a rate over its groups."""
        distinct, place = np.unique(comparable(rates[name]), return_inverse=True)
        n = n_groups[name]
        return np.array([upper_limit(rate * n, n, targets.confidence) for rate in distinct])[place]

    shares = np.stack([highest(name) / limit for name, limit in targets.limits.items()])
    return np.lexsort((surface.off, shares.sum(axis=0).round(9), shares.max(axis=0).round(9)))


def _chosen(
    surface: Surface,
    order: Int[np.ndarray, " settings"],
    within: Bool[np.ndarray, " settings"],
    rates: Columns,
    targets: Targets,
    passed: int,  # of the path: certified
) -> tuple[int, str]:
    """Return the setting that is used, and the rule by which it is, of those within the limits as estimated."""
    if len(order) == 1:
        return int(order[0]), "given"
    if targets.costs is not None:
        allowed = order[:passed] if passed else order[within[order]] if targets.limits and within.any() else order
        spent = expected_cost(rates, targets.costs)[allowed]
        return int(allowed[np.argmin(spent.round(9))]), "least cost"
    if targets.limits:
        return int(order[0]), LARGEST_MARGIN
    return int(np.argmin(surface.off)), "nearest 0.5"
