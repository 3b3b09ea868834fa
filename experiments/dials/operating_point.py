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
from experiments.dials.surface import AXES, Risk, Surface, comparable, rates_of
from experiments.dials.tradeoff import COST_KEYS
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
Rates = Mapping[str, Float[np.ndarray, " settings"]]  # of each risk at each setting

# the dial without which a risk is out of reach
NEEDS = {"missed_harm": "normative", "overconfidence": "epistemic", "uncertain_refused": "normative"}


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


@dataclass(frozen=True)
class OperatingPoint:
    """The chosen setting and its certificate."""

    index: int  # into the surface
    certificate: ThresholdCertificate


def expected_cost(rates: Rates, costs: Mapping[str, float]) -> Float[np.ndarray, " settings"]:
    """Return the expected cost of each setting: the sum of the rate of each axis times the cost of its mistake."""
    keys = zip(AXES, COST_KEYS, strict=True)
    return np.asarray(sum(costs.get(key, 0.0) * comparable(rates[name]) for name, key in keys))


def certification_path(
    surface: Surface, rates: Rates, n_groups: Mapping[str, float], targets: Targets
) -> Int[np.ndarray, " settings"]:
    """Order the settings, the largest safety margin first; ties by the sum of the shares, then by nearness to 0.5.

    Args:
        rates: of each risk on the choice prompts.
        n_groups: effective number of groups behind each rate.
    """
    off = np.abs(surface.settings - 0.5).sum(axis=1)
    if not targets.limits:
        return np.lexsort((off, expected_cost(rates, targets.costs or dict.fromkeys(COST_KEYS, 1.0))))
    shares = np.stack(
        [
            _upper_limits(rates[name], n_groups[name], targets.confidence) / limit
            for name, limit in targets.limits.items()
        ]
    )
    return np.lexsort((off, shares.sum(axis=0).round(9), shares.max(axis=0).round(9)))


def _upper_limits(
    rates: Float[np.ndarray, " settings"], n_groups: float, confidence: float
) -> Float[np.ndarray, " settings"]:
    """Return the upper confidence limit of each rate over `n_groups` groups."""
    distinct, inverse = np.unique(comparable(rates), return_inverse=True)
    return np.array([upper_limit(rate * n_groups, n_groups, confidence) for rate in distinct])[inverse]


def choose_thresholds(
    surface: Surface,
    choice: Mapping[str, Risk],
    certification: Mapping[str, Risk],
    corpus: Corpus,
    targets: Targets,
    seed: int,
) -> OperatingPoint:
    """Choose a setting on the choice prompts and certify it on the held-out certification prompts.

    Args:
        choice, certification: every risk, counted on the choice prompts and on the certification prompts.
    """
    rates = rates_of(surface, choice)
    independent = {name: effective_groups(corpus.groups_among(risk.rows)) for name, risk in choice.items()}
    order = certification_path(surface, rates, independent, targets)
    drawn = {
        name: one_per_group(r.rows, corpus.groups_among(r.rows), seed) if len(r.rows) else r.rows
        for name, r in certification.items()
    }
    n = {name: len(rows) for name, rows in drawn.items()}
    limits, confidence = targets.limits, targets.confidence
    asked = [name for name in limits if allowed_failures(n[name], limits[name], confidence) >= 0]
    failures = {name: surface.failures(certification[name], drawn[name]) for name in certification}
    passed = 0
    if asked:
        tried = np.stack([failures[name][order] for name in asked], axis=1)
        passed = certified_prefix(tried, [n[k] for k in asked], [limits[k] for k in asked], confidence)
    index, rule = _chosen(surface, order, rates, targets, passed)
    at = {name: upper_limit(int(failures[name][index]), n[name], confidence) for name in limits}
    holding = [name for name, limit in limits.items() if (name in asked if passed else at[name] <= limit)]
    return OperatingPoint(
        index,
        ThresholdCertificate(
            rule=rule,
            part=CERTIFIED_ON,
            confidence=confidence,
            jointly=asked if passed else [],
            settings_certified=passed,
            settings_tried=len(order),
            settings_within_limits=int(_meeting(rates, limits).sum()) if limits else len(order),
            risks={
                name: _risk(
                    limits.get(name), int(failures[name][index]), n[name], targets, rates[name], name in holding
                )
                for name in certification
            },
        ),
    )


def _risk(
    limit: float | None, failures: int, n: int, targets: Targets, on_choice: Float[np.ndarray, " settings"], holds: bool
) -> RiskCertificate:
    """Return the certificate of one risk from its failures among n prompts, with the n that its limit would need."""
    confidence = targets.confidence
    return RiskCertificate(
        limit=limit,
        certified=holds,
        failures=failures,
        n=n,
        at_most=upper_limit(failures, n, confidence),
        best_reachable=best_reachable(n, confidence),
        n_needed=None if limit is None else n_needed(limit, confidence),
        n_at_this_rate=None if limit is None else n_at_rate(failures / n if n else 0.0, limit, confidence),
        best_on_choice=None if np.isnan(on_choice).all() else float(np.nanmin(on_choice)),
    )


def _chosen(
    surface: Surface, order: Int[np.ndarray, " settings"], rates: Rates, targets: Targets, passed: int
) -> tuple[int, str]:
    if len(order) == 1:
        return int(order[0]), "given"
    if targets.costs is not None:
        within = order[:passed] if passed else _within_limits(order, rates, targets)
        spent = expected_cost(rates, targets.costs)[within]
        return int(within[np.argmin(spent.round(9))]), "least cost"
    if targets.limits:
        return int(order[0]), LARGEST_MARGIN
    return int(np.argmin(np.abs(surface.settings - 0.5).sum(axis=1))), "nearest 0.5"


def _within_limits(order: Int[np.ndarray, " settings"], rates: Rates, targets: Targets) -> Int[np.ndarray, " meeting"]:
    """Return the settings that meet every limit on the choice prompts, as estimated; all where none does."""
    meets = _meeting(rates, targets.limits)[order] if targets.limits else np.ones(len(order), dtype=bool)
    return order[meets] if meets.any() else order


def _meeting(rates: Rates, limits: Mapping[str, float]) -> Bool[np.ndarray, " settings"]:
    """Return which settings meet every limit on the choice prompts, as estimated."""
    return np.asarray(np.all([comparable(rates[name]) <= limit for name, limit in limits.items()], axis=0))
