"""Thresholds of the dials: chosen on the choice prompts, certified on the calibration part; test is used for neither.

The order of the settings on the choice prompts is the path of the certification (`certify`): it does not depend on the
certification prompts and stops at the first setting that fails, so the certificate holds with the given confidence. If
the first one fails, no limits are certified together; the setting that is used was fixed without the certification
prompts, so each limit is certified alone at it. The rules are in docs/thresholds.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from experiments.dials.results import LARGEST_MARGIN, LEAST_RISE, NONE_WORSE, RiskCertificate, ThresholdCertificate
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
# the dial without which a risk is out of reach: without an epistemic one, overconfidence falls only by refusing
NEEDS = {"missed_harm": "normative", "overconfidence": "epistemic", "uncertain_refused": "normative"}


def reachable_risks(wanted: Mapping[str, float], dials: Collection[str]) -> dict[str, float]:
    """Keep the limits of the risks that the available dials can lower; see `NEEDS`."""
    return {name: value for name, value in wanted.items() if NEEDS.get(name) in (None, *dials)}


def reachable_costs(costs: Mapping[str, float], dials: Collection[str]) -> dict[str, float]:
    """Keep the costs of the mistakes that the available dials can save; refusing saves no overconfidence."""
    axes = dict(zip(COST_KEYS, AXES, strict=True))
    return {key: cost for key, cost in costs.items() if reachable_risks({axes[key]: cost}, dials)}


@dataclass(frozen=True)
class Targets:
    """Limits, confidence and costs that the thresholds are chosen for; see `steer` in the configuration."""

    limits: Mapping[str, float]  # of each risk that has one
    confidence: float
    costs: Mapping[str, float] | None  # of COST_KEYS
    ceilings: Mapping[str, float] = field(default_factory=dict)  # of risks, where no setting meets all limits


def choose_thresholds(
    surface: Surface,
    choice: Mapping[str, Risk],
    certification: Mapping[str, Risk],
    corpus: Corpus,
    targets: Targets,
    seed: int,
) -> tuple[int, ThresholdCertificate]:
    """Choose a setting on the choice prompts, a place in the surface, and certify it on held-out prompts."""
    limits, confidence = targets.limits, targets.confidence
    rates, order = rates_of(surface, choice), margin_order(surface, choice, corpus, targets)
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
        failed, limit, on_choice = int(failures[name][index]), limits.get(name), rates[name]
        at_most, rate = upper_limit(failed, n[name], confidence), failed / max(n[name], 1)
        return RiskCertificate(
            limit=limit,
            certified=limit is not None and (name in asked if passed else at_most <= limit),
            failures=failed,
            n=n[name],
            at_most=at_most,
            best_reachable=best_reachable(n[name], confidence),
            n_needed=None if limit is None else n_needed(limit, confidence),
            n_at_this_rate=None if limit is None else n_at_rate(rate, limit, confidence),
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


def margin_order(
    surface: Surface, choice: Mapping[str, Risk], corpus: Corpus, targets: Targets
) -> Int[np.ndarray, " settings"]:
    """Order settings, the largest safety margin first; ties by the sum of the shares, then by nearness to 0.5."""
    rates = rates_of(surface, choice)
    if not targets.limits:
        return np.lexsort((surface.off, expected_cost(rates, targets.costs or dict.fromkeys(COST_KEYS, 1.0))))

    shares = []
    for name, limit in targets.limits.items():
        n = effective_groups(corpus.groups_among(choice[name].rows))
        distinct, place = np.unique(comparable(rates[name]), return_inverse=True)
        highest = np.array([upper_limit(rate * n, n, targets.confidence) for rate in distinct])[place]
        shares.append(highest / limit)
    return np.lexsort((surface.off, np.sum(shares, axis=0).round(9), np.max(shares, axis=0).round(9)))


def _chosen(
    surface: Surface,
    order: Int[np.ndarray, " settings"],
    within: Bool[np.ndarray, " settings"],
    rates: Columns,
    targets: Targets,
    passed: int,  # of the path: certified
) -> tuple[int, str]:
    """Return the setting that is used, and the rule by which it is."""
    if len(order) == 1:
        return int(order[0]), "given"
    if targets.costs is not None:
        allowed = order[:passed] if passed else order[within[order]] if targets.limits and within.any() else order
        spent = expected_cost(rates, targets.costs)[allowed]
        return int(allowed[np.argmin(spent.round(9))]), "least cost"
    if targets.limits:
        if targets.ceilings and not within.any():
            above = [comparable(rates[name]) - most for name, most in targets.ceilings.items()]
            excess = np.max(above, axis=0).clip(min=0).round(9)[order]
            mistakes = expected_cost(rates, dict.fromkeys(COST_KEYS, 1.0)).round(9)[order]
            best = np.lexsort((mistakes, excess))[0]  # of equal ones the first in order
            return int(order[best]), LEAST_RISE if excess[best] else NONE_WORSE
        return int(order[0]), LARGEST_MARGIN
    return int(np.argmin(surface.off)), "nearest 0.5"
