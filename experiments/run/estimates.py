"""Estimates with intervals over groups, and their paired changes against a baseline on the same prompts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Shaped

from probes.statistics.intervals import Estimate, effective_groups, grouped_mean
from probes.statistics.tango import tango
from scoring.rates import grouped_rate


@dataclass(frozen=True)
class Outcome:
    """Whether an outcome occurred on each prompt, and which prompts were judged."""

    hit: Bool[np.ndarray, " prompts"]
    judged: Bool[np.ndarray, " prompts"]


def outcome(actions: Shaped[np.ndarray, " prompts"], counted: Collection[str]) -> Outcome:
    """Return which actions are among those counted; an action of None is unjudged."""
    return Outcome(
        np.array([action in counted for action in actions], dtype=bool),
        np.array([action is not None for action in actions], dtype=bool),
    )


@dataclass(frozen=True, kw_only=True)
class Share(Estimate):
    """A share of prompts, or a mean over tokens, and its paired change against a baseline."""

    unjudged: int | None = None
    n_tokens: int | None = None
    change: Estimate | None = None


def rate(now: Outcome, groups: Shaped[np.ndarray, " prompts"], before: Outcome | None = None) -> Share:
    """Return the share of hits among judged prompts, and its paired change on prompts judged both times."""
    judged = now.judged
    share = Share.of(grouped_rate(now.hit[judged], groups[judged]), unjudged=int((~judged).sum()))
    if before is None:
        return share
    both = now.judged & before.judged
    change = tango(now.hit[both], before.hit[both], effective_groups(groups[both]))
    return replace(share, change=change.counted(int(both.sum()), groups[both]))


def mean(
    nats: list[Float[np.ndarray, " tokens"]],
    groups: Shaped[np.ndarray, " texts"],
    before: list[Float[np.ndarray, " tokens"]] | None = None,
) -> Share:
    """Return the mean over all tokens of some texts, in nats, and its paired change.

    Args:
        nats: of each text, one value a token.
        groups: group of each text; intervals are over groups, whatever their number of tokens.

    If a value is not finite (an intervention may break the model), the estimate is NaN, with the n that was tried.
    """
    owner = np.repeat(groups, [len(each) for each in nats])
    values = np.concatenate(nats) if nats else np.zeros(0)
    share = Share.of(_mean(values, owner, 0.0).counted(len(nats), groups), n_tokens=len(values))
    if before is None:
        return share
    moved = values - np.concatenate(before) if before else values
    return replace(share, change=_mean(moved, owner, -np.inf).counted(len(nats), groups))


def _mean(values: np.ndarray, owner: np.ndarray, least: float) -> Estimate:
    if len(values) and np.isfinite(values).all():
        return grouped_mean(values, owner, least=least)
    return Estimate(float("nan"), least, float("inf"))
