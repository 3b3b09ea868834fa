"""At which thresholds the dials stand: chosen on some prompts, certified on others, neither of them test.

Every pair of thresholds is put in an order on the choice prompts (train, whose reads are cross-fitted, and
validation): the most comfortable first, the one whose worst rate is the smallest share of its limit. Rates are taken
at their upper confidence limits over groups, since a rate of zero among few people is less of a comfort than among
many. That order is the path along which certification prompts are asked (`certify`); since they had no say in
it, and end it at the first failure, what is certified holds with the stated confidence. Without costs the dials stand
at the head of the path; with costs, at the cheapest certified pair, the cost being estimated on the choice prompts. A
limit that so few prompts could not certify even if none failed is left out of the path, and said. Where the head
itself fails, it stays, and each limit is told by itself: the pair was fixed beforehand, so each certificate alone
holds with the stated confidence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.dials.surface import AXES, Risk, Surface, rates_of
from experiments.run.corpus import Corpus
from probes.statistics.certify import (
    allowed,
    best_reachable,
    certified_prefix,
    n_at_rate,
    n_needed,
    one_per_group,
    upper_limit,
)
from probes.statistics.intervals import effective_groups

CERTIFIED_ON = "calibration"


# the dial without which a risk is out of reach
NEEDS = {"missed_harm": "normative", "overconfidence": "epistemic", "uncertain_refused": "normative"}


def within_reach(wanted: Mapping[str, float], dials: Collection[str]) -> dict[str, float]:
    """Keep what is wanted of risks that the dials at hand can move rightly.

    Without an epistemic dial overconfidence falls only where uncertain questions are refused: a false purchase, paid
    in benign prompts.
    """
    return {name: value for name, value in wanted.items() if NEEDS.get(name) in (None, *dials)}


@dataclass(frozen=True)
class Wanted:
    """What the thresholds are to reach; see `steer` in the configuration."""

    limits: Mapping[str, float]  # of each risk that has one
    confidence: float
    costs: Mapping[str, float] | None  # of each axis


@dataclass(frozen=True)
class Point:
    """The chosen setting, and what certification says of it."""

    index: int  # into the surface
    rule: str  # what chose it
    record: dict[str, Any]


def cost(rates: Mapping[str, np.ndarray], costs: Mapping[str, float]) -> np.ndarray:
    """Return the expected cost of each setting: the sum of each rate times what its mistake costs."""
    return np.asarray(sum(costs.get(name, 0.0) * np.nan_to_num(rates[name]) for name in AXES))


def path(
    surface: Surface, rates: Mapping[str, np.ndarray], n_groups: Mapping[str, float], wanted: Wanted
) -> np.ndarray:
    """Order the settings, the most comfortable first; ties by the sum of the shares, then by nearness to 0.5.

    Args:
        rates: of each risk on the prompts that choose, (n_settings,).
        n_groups: how many independent groups each is counted on.
    """
    off = np.abs(surface.settings - 0.5).sum(axis=1)
    if not wanted.limits:
        return np.lexsort((off, cost(rates, wanted.costs or dict.fromkeys(AXES, 1.0))))
    shares = np.stack([_at_most(rates[name], n_groups[name], wanted.confidence) / limit
                       for name, limit in wanted.limits.items()])  # fmt: skip
    return np.lexsort((off, shares.sum(axis=0).round(9), shares.max(axis=0).round(9)))


def _at_most(rates: np.ndarray, n_groups: float, confidence: float) -> np.ndarray:
    """Return the upper limit of each rate over so many groups, (n_settings,)."""
    distinct, inverse = np.unique(np.nan_to_num(rates), return_inverse=True)
    return np.array([upper_limit(rate * n_groups, n_groups, confidence) for rate in distinct])[inverse]


def place(
    surface: Surface, choice: Mapping[str, Risk], held: Mapping[str, Risk], corpus: Corpus, wanted: Wanted, seed: int
) -> Point:
    """Choose a setting on the choice prompts, and certify on the held-out ones.

    Args:
        choice, held: every risk, counted on the prompts that choose and on those that certify.
    """
    rates = rates_of(surface, choice)
    independent = {name: effective_groups(corpus.groups_among(risk.rows)) for name, risk in choice.items()}
    order = path(surface, rates, independent, wanted)
    drawn = {name: one_per_group(r.rows, corpus.groups_among(r.rows), seed) if len(r.rows) else r.rows
             for name, r in held.items()}  # fmt: skip
    n = {name: len(rows) for name, rows in drawn.items()}
    limits, confidence = wanted.limits, wanted.confidence
    asked = [name for name in limits if allowed(n[name], limits[name], confidence) >= 0]
    failures = {name: surface.failures(held[name], drawn[name]) for name in held}
    passed = 0
    if asked:
        tried = np.stack([failures[name][order] for name in asked], axis=1)
        passed = certified_prefix(tried, [n[k] for k in asked], [limits[k] for k in asked], confidence)
    index, rule = _chosen(surface, order, rates, wanted, passed)
    at = {name: upper_limit(int(failures[name][index]), n[name], confidence) for name in held}
    stands = [name for name, limit in limits.items() if (name in asked if passed else at[name] <= limit)]
    record = {
        "part": CERTIFIED_ON,
        "confidence": confidence,
        "jointly": asked if passed else [],
        "settings_certified": passed,
        "settings_tried": len(order),
        "risks": {
            name: {
                "limit": limits.get(name),
                "certified": name in stands,
                "failures": int(failures[name][index]),
                "n": n[name],
                "at_most": at[name],
                "best_reachable": best_reachable(n[name], confidence),
                **_would_take(int(failures[name][index]), n[name], limits.get(name), confidence),
            }
            for name in held
        },
    }
    return Point(index, rule, record)


def _chosen(
    surface: Surface, order: np.ndarray, rates: Mapping[str, np.ndarray], wanted: Wanted, passed: int
) -> tuple[int, str]:
    if len(order) == 1:
        return int(order[0]), "given"
    if wanted.costs is not None:
        within = order[:passed] if passed else _within_limits(order, rates, wanted)
        spent = cost(rates, wanted.costs)[within]
        return int(within[np.argmin(spent.round(9))]), "least cost"
    if wanted.limits:
        return int(order[0]), "most comfortable"
    return int(np.argmin(np.abs(surface.settings - 0.5).sum(axis=1))), "nearest 0.5"


def _within_limits(order: np.ndarray, rates: Mapping[str, np.ndarray], wanted: Wanted) -> np.ndarray:
    """Return the settings that meet every limit on the choice prompts, as estimated; all where none does."""
    meets = np.all([np.nan_to_num(rates[k])[order] <= limit for k, limit in wanted.limits.items()] or [[True]], axis=0)
    return order[np.broadcast_to(meets, order.shape)] if meets.any() else order


def _would_take(failures: int, n: int, limit: float | None, confidence: float) -> dict[str, int | None]:
    """Say how many independent prompts certify the limit: if none fails, and if as many do as did."""
    if limit is None:
        return {"n_needed": None, "n_at_this_rate": None}
    rate = failures / n if n else 0.0
    return {"n_needed": n_needed(limit, confidence), "n_at_this_rate": n_at_rate(rate, limit, confidence)}
