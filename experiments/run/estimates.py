"""Estimates with intervals over groups, and their change against a baseline on the same prompts, ready for JSON."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from probes.statistics.intervals import Interval, effective_groups, mean_over_groups, paired_difference
from scoring.rates import grouped_rate


@dataclass(frozen=True)
class Outcome:
    """Whether something happened on each prompt, and where that could be judged; (n_prompts,) bool each."""

    hit: np.ndarray
    judged: np.ndarray


def outcome(actions: np.ndarray, counted: Collection[str]) -> Outcome:
    """Say which (n_prompts,) actions are among those counted; None is one that could not be judged."""
    return Outcome(
        np.array([action in counted for action in actions], dtype=bool),
        np.array([action is not None for action in actions], dtype=bool),
    )


def rate(now: Outcome, groups: np.ndarray, before: Outcome | None = None) -> dict[str, Any]:
    """Return the share of judged prompts that hit, and its paired change on those judged both times."""
    told = now.judged
    found = record(grouped_rate(now.hit[told], groups[told]), int(told.sum()), groups[told])
    found["unjudged"] = int((~told).sum())
    if before is not None:
        both = now.judged & before.judged
        independent = effective_groups(groups[both])
        change = paired_difference(now.hit[both], before.hit[both], independent)
        found["change"] = record(change, int(both.sum()), groups[both])
    return found


def mean(nats: list[np.ndarray], groups: np.ndarray, before: list[np.ndarray] | None = None) -> dict[str, Any]:
    """Return the mean of the nats of all tokens of some texts, and its paired change.

    Args:
        nats: of each text, (n_tokens,).
        groups: (n_texts,) what belongs together; intervals are over these, however many tokens one has.

    Numbers that are not finite, as an intervention that breaks the model gives, leave nothing to estimate: null, with
    the n that was tried.
    """
    owner = np.repeat(groups, [len(each) for each in nats])
    values = np.concatenate(nats) if nats else np.zeros(0)
    found = record(_mean(values, owner, 0.0), len(nats), groups) | {"n_tokens": len(values)}
    if before is not None:
        change = values - np.concatenate(before) if before else values
        found["change"] = record(_mean(change, owner, -np.inf), len(nats), groups)
    return found


def _mean(values: np.ndarray, owner: np.ndarray, least: float) -> Interval:
    if len(values) and np.isfinite(values).all():
        return mean_over_groups(values, owner, least=least)
    return Interval(float("nan"), least, float("inf"))


def record(interval: Interval, n: int, groups: np.ndarray) -> dict[str, Any]:
    """Return estimate, low and high (null where there is none), the n they rest on, and its effective groups."""
    limits = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    finite = {name: float(value) if np.isfinite(value) else None for name, value in limits.items()}
    return finite | {"n": n, "n_groups": round(effective_groups(groups), 2)}
