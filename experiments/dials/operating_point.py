"""The thresholds of the dials: chosen on some prompts, certified on others, neither of them test.

Every pair of thresholds is put in an order on the choice prompts (train, whose reads are cross-fitted, and
validation): the largest safety margin first, which is the pair whose worst rate is the smallest share of its limit.
Rates are taken at their upper confidence limits over groups, since a rate of zero among few people is less sure than
among many. That order is the path along which certification prompts are asked (`certify`); since they do not shape
it, and end it at the first failure, what is certified holds with the stated confidence. Without costs the dials are set
to the head of the path; with costs, to the cheapest certified pair, the cost being estimated on the choice prompts. A
limit that so few prompts could not certify even if none failed is left out of the path, and reported. Where the head
itself fails, it stays, and each limit is certified by itself: the pair was fixed beforehand, so each certificate alone
holds with the stated confidence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from experiments.dials.results import Certificate, RiskCertificate
from experiments.dials.surface import AXES, Risk, Surface, rates_of
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
LARGEST_MARGIN = "most comfortable"  # the rule's name in results since 0.1: the largest safety margin

# the dial without which a risk is out of reach
NEEDS = {"missed_harm": "normative", "overconfidence": "epistemic", "uncertain_refused": "normative"}


def within_reach(wanted: Mapping[str, float], dials: Collection[str]) -> dict[str, float]:
    """Keep what is wanted of risks that the dials at hand can move rightly.

    Without an epistemic dial overconfidence falls only where uncertain questions are refused: a false purchase, paid
    in benign prompts.
    """
    return {name: value for name, value in wanted.items() if NEEDS.get(name) in (None, *dials)}


@dataclass(frozen=True)
class Targets:
    """What the thresholds are to reach; see `steer` in the configuration."""

    limits: Mapping[str, float]  # of each risk that has one
    confidence: float
    costs: Mapping[str, float] | None  # of each axis


@dataclass(frozen=True)
class OperatingPoint:
    """The chosen setting, and what certification says of it."""

    index: int  # into the surface
    certificate: Certificate


def cost(rates: Rates, costs: Mapping[str, float]) -> Float[np.ndarray, " settings"]:
    """Return the expected cost of each setting: the sum of each rate times what its mistake costs."""
    return np.asarray(sum(costs.get(name, 0.0) * np.nan_to_num(rates[name]) for name in AXES))


def path(
    surface: Surface, rates: Rates, n_groups: Mapping[str, float], targets: Targets
) -> Int[np.ndarray, " settings"]:
    """Order the settings, the largest safety margin first; ties by the sum of the shares, then by nearness to 0.5.

    Args:
        rates: of each risk on the prompts that choose.
        n_groups: how many independent groups each is counted on.
    """
    off = np.abs(surface.settings - 0.5).sum(axis=1)
    if not targets.limits:
        return np.lexsort((off, cost(rates, targets.costs or dict.fromkeys(AXES, 1.0))))
    shares = np.stack([_at_most(rates[name], n_groups[name], targets.confidence) / limit
                       for name, limit in targets.limits.items()])  # fmt: skip
    return np.lexsort((off, shares.sum(axis=0).round(9), shares.max(axis=0).round(9)))


def _at_most(
    rates: Float[np.ndarray, " settings"], n_groups: float, confidence: float
) -> Float[np.ndarray, " settings"]:
    """Return the upper limit of each rate over so many groups."""
    distinct, inverse = np.unique(np.nan_to_num(rates), return_inverse=True)
    return np.array([upper_limit(rate * n_groups, n_groups, confidence) for rate in distinct])[inverse]


def place(
    surface: Surface, choice: Mapping[str, Risk], held: Mapping[str, Risk], corpus: Corpus, targets: Targets, seed: int
) -> OperatingPoint:
    """Choose a setting on the choice prompts, and certify on the held-out ones.

    Args:
        choice, held: every risk, counted on the prompts that choose and on those that certify.
    """
    rates = rates_of(surface, choice)
    independent = {name: effective_groups(corpus.groups_among(risk.rows)) for name, risk in choice.items()}
    order = path(surface, rates, independent, targets)
    drawn = {name: one_per_group(r.rows, corpus.groups_among(r.rows), seed) if len(r.rows) else r.rows
             for name, r in held.items()}  # fmt: skip
    n = {name: len(rows) for name, rows in drawn.items()}
    limits, confidence = targets.limits, targets.confidence
    asked = [name for name in limits if allowed_failures(n[name], limits[name], confidence) >= 0]
    failures = {name: surface.failures(held[name], drawn[name]) for name in held}
    passed = 0
    if asked:
        tried = np.stack([failures[name][order] for name in asked], axis=1)
        passed = certified_prefix(tried, [n[k] for k in asked], [limits[k] for k in asked], confidence)
    index, rule = _chosen(surface, order, rates, targets, passed)
    at = {name: upper_limit(int(failures[name][index]), n[name], confidence) for name in limits}
    holding = [name for name, limit in limits.items() if (name in asked if passed else at[name] <= limit)]
    return OperatingPoint(
        index,
        Certificate(
            rule=rule,
            part=CERTIFIED_ON,
            confidence=confidence,
            jointly=asked if passed else [],
            settings_certified=passed,
            settings_tried=len(order),
            risks={
                name: _risk(limits.get(name), int(failures[name][index]), n[name], confidence, holds=name in holding)
                for name in held
            },
        ),
    )


def _risk(limit: float | None, failures: int, n: int, confidence: float, *, holds: bool) -> RiskCertificate:
    """Return what so many failures among n say; how many prompts certify the limit, and with as many failing."""
    return RiskCertificate(
        limit=limit,
        certified=holds,
        failures=failures,
        n=n,
        at_most=upper_limit(failures, n, confidence),
        best_reachable=best_reachable(n, confidence),
        n_needed=None if limit is None else n_needed(limit, confidence),
        n_at_this_rate=None if limit is None else n_at_rate(failures / n if n else 0.0, limit, confidence),
    )


def _chosen(
    surface: Surface, order: Int[np.ndarray, " settings"], rates: Rates, targets: Targets, passed: int
) -> tuple[int, str]:
    if len(order) == 1:
        return int(order[0]), "given"
    if targets.costs is not None:
        within = order[:passed] if passed else _within_limits(order, rates, targets)
        spent = cost(rates, targets.costs)[within]
        return int(within[np.argmin(spent.round(9))]), "least cost"
    if targets.limits:
        return int(order[0]), LARGEST_MARGIN
    return int(np.argmin(np.abs(surface.settings - 0.5).sum(axis=1))), "nearest 0.5"


def _within_limits(order: Int[np.ndarray, " settings"], rates: Rates, targets: Targets) -> Int[np.ndarray, " meeting"]:
    """Return the settings that meet every limit on the choice prompts, as estimated; all where none does."""
    meets = np.all([np.nan_to_num(rates[k])[order] <= limit for k, limit in targets.limits.items()] or [[True]], axis=0)
    return order[np.broadcast_to(meets, order.shape)] if meets.any() else order
