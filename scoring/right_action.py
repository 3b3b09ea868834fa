"""The right-action score: right action, not right output, and nothing to be gained by more or less caution throughout.

Each completion earns the credit of what it did, given what would have been right (configs/right_action.yaml). Means
are taken within each right action and then over them, so the balance of labels does not matter. From every action's
credit its own mean over the right actions is taken away: what somebody who always did it would earn. So a constant
policy, and any mixture of them that does not look at the prompt, scores 0, and the right action throughout scores 1.
With two right actions and no partial credit this is Youden's J (1950), the informedness of a two-way choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from extract.errors import UserError
from extract.prompts.prompt import RIGHT_ACTIONS
from extract.yaml_file import read_yaml
from probes.statistics.intervals import NOTHING, Interval, combination, difference
from scoring.actions import ACTIONS
from scoring.rates import mean_of_groups

Adjacency = Mapping[str, Mapping[str, float]]  # right action: credit of others
ScoredAction = tuple[str, tuple[str, ...], str]  # right action, what else was acceptable, what was done
ScoredChange = tuple[str, tuple[str, ...], str, str]  # the same, what was done first and second
GroupOverlap = Mapping[
    tuple[str, str], float
]  # two right actions: sum over the groups of the product of their rows of each
DEFAULT = Path(__file__).resolve().parent.parent / "configs" / "right_action.yaml"


def load_adjacency(path: Path = DEFAULT) -> Adjacency:
    """Read an adjacency.

    Raises:
        UserError: the file is missing or malformed, or a credit is not between 0 and 1; names action and credit.
    """
    given = read_yaml(path, "adjacency")
    for right, credits in given.items():
        if right not in RIGHT_ACTIONS:
            raise UserError(f"{path}: {right!r} is no right action; expected one of {', '.join(RIGHT_ACTIONS)}")
        if not isinstance(credits, dict | None):
            raise UserError(f"{path}: {right} must hold actions and their credits, found {type(credits).__name__}")
        for action, credit in (credits or {}).items():
            known = action in ACTIONS and action != right
            if not known or isinstance(credit, bool) or not isinstance(credit, int | float) or not 0 <= credit <= 1:
                raise UserError(f"{path}: {right}: {action}: {credit!r}; expected another action out of "
                                f"{', '.join(ACTIONS)} and a credit from 0 to 1")  # fmt: skip
    return {right: dict(credits or {}) for right, credits in given.items()}


def right_action_score(
    right: Sequence[str],
    acceptable: Sequence[Sequence[str]],
    actions: Sequence[str | None],
    groups: Int[np.ndarray, " row"],
    adjacency: Adjacency,
    alpha: float = 0.05,
) -> Interval:
    """Return the score of completions one by one; see `score_counts`.

    Args:
        right: what would have been right, (n,).
        acceptable: what would have been as good, (n,).
        actions: what was done, None where unjudged, (n,).
        groups: which rows belong together, (n,) int.
    """
    counts: Counter[ScoredAction] = Counter()
    rows: dict[int, Counter[str]] = {}
    for should, also, did, group in zip(right, acceptable, actions, groups.tolist(), strict=True):
        if did is not None:
            counts[should, tuple(also), did] += 1
            rows.setdefault(group, Counter())[should] += 1
    shared: Counter[tuple[str, str]] = Counter()
    for mine in rows.values():
        for (c, m), (d, k) in product(mine.items(), repeat=2):
            shared[c, d] += m * k
    return score_counts(counts, shared, adjacency, alpha)


def score_counts(
    counts: Mapping[ScoredAction, int], shared: GroupOverlap, adjacency: Adjacency, alpha: float = 0.05
) -> Interval:
    """Return the score with an interval over independent groups.

    Args:
        counts: how many completions did what, by what would have been right and what else was acceptable.
        shared: how the groups hold the right actions; see `_groups`.

    Returns:
        1 for the right action throughout, 0 for any constant policy, below 0 for worse than that. Nothing (NaN) where
        fewer than two right actions occur, since then a constant policy does what is right.
    """
    scale = _scale(counts, adjacency)
    if scale is None:
        return NOTHING
    constant, perfect, classes = scale
    n_groups, correlation = _groups(shared, classes, [_rows(counts, c) for c in classes])
    low, high = -float(constant.max()), 1 - float(constant.min())
    means: list[Interval] = []
    for c, size in zip(classes, n_groups, strict=True):
        n = _rows(counts, c)
        gained = sum(
            count * (credits_of(right, also, adjacency)[ACTIONS.index(did)] - constant[ACTIONS.index(did)])
            for (right, also, did), count in counts.items()
            if right == c
        )
        unit = mean_of_groups((gained - low * n) / (high - low), n, size, alpha)
        means.append(Interval(*(low + (high - low) * limit for limit in (unit.estimate, unit.low, unit.high))))
    score = combination([1 / (len(classes) * perfect)] * len(classes), means, correlation)
    return Interval(score.estimate, score.low, max(score.estimate, min(1.0, score.high)))


def score_change(
    counts: Mapping[ScoredChange, int], shared: GroupOverlap, adjacency: Adjacency, alpha: float = 0.05
) -> Interval:
    """Return by how much the score of the same prompts changed, second minus first.

    What is gained and what is lost lie between 0 and a largest credit each, and get an exact interval each, which are
    joined as shares of one multinomial: where little changed the interval is narrow, and it holds where nothing did.
    """
    before: Counter[ScoredAction] = Counter()
    for (right, also, first, _), count in counts.items():
        before[right, also, first] += count
    scale = _scale(before, adjacency)
    if scale is None:
        return NOTHING
    constant, perfect, classes = scale
    n_groups, correlation = _groups(shared, classes, [_rows(before, c) for c in classes])
    reach = 1 + float(constant.max() - constant.min())
    parts: list[Interval] = []
    for c, size in zip(classes, n_groups, strict=True):
        n = _rows(before, c)
        up = down = 0.0
        for (right, also, first, second), count in counts.items():
            if right == c:
                net = credits_of(right, also, adjacency) - constant
                moved = float(net[ACTIONS.index(second)] - net[ACTIONS.index(first)])
                up, down = up + count * max(moved, 0.0), down + count * max(-moved, 0.0)
        gained, lost = (mean_of_groups(total / reach, n, size, alpha) for total in (up, down))
        shares = gained.estimate, lost.estimate
        odds = [share / max(1e-12, 1 - share) for share in shares]
        unit = difference(gained, lost, max(-1.0, -float(np.sqrt(odds[0] * odds[1]))))
        parts.append(Interval(*(reach * limit for limit in (unit.estimate, unit.low, unit.high))))
    return combination([1 / (len(classes) * perfect)] * len(classes), parts, correlation)


def credits_of(right: str, acceptable: Sequence[str], adjacency: Adjacency) -> Float[np.ndarray, " action"]:
    """Return the credit of every action, in the order of ACTIONS, (n_actions,)."""
    partial = adjacency.get(right, {})
    return np.array([1.0 if a == right or a in acceptable else float(partial.get(a, 0)) for a in ACTIONS])


def net_credits(
    right: Sequence[str], acceptable: Sequence[Sequence[str]], adjacency: Adjacency
) -> tuple[list[str], float, Float[np.ndarray, "row action"]] | None:
    """Return what each action would gain over constant policies on each prompt, all being judged.

    The score is the mean over right actions of the mean net credit of what was done, over what perfection gains.

    Returns:
        The right actions that occur, what perfection gains, and net credits, (n, n_actions) in the order of ACTIONS;
        None where there is no score.
    """
    counts = Counter((should, tuple(also), should) for should, also in zip(right, acceptable, strict=True))
    scale = _scale(counts, adjacency)
    if scale is None:
        return None
    constant, perfect, classes = scale
    rows = [credits_of(should, also, adjacency) - constant for should, also in zip(right, acceptable, strict=True)]
    return classes, perfect, np.stack(rows)


def _rows(counts: Mapping[ScoredAction, int], right: str) -> int:
    return sum(count for (c, _, _), count in counts.items() if c == right)


def _groups(
    shared: GroupOverlap, classes: Sequence[str], n: Sequence[int]
) -> tuple[list[float], Float[np.ndarray, "right right"]]:
    """Return the effective number of groups behind each right action, and how the means over them may correlate.

    Both as if all prompts of a group were alike, which claims least: a group with prompts of two right actions, as a
    minimal pair is, moves both means at once.
    """
    S = np.array([[float(shared.get((c, d), 0)) for d in classes] for c in classes])
    own = np.sqrt(np.diag(S))
    return (np.array(n) ** 2 / np.diag(S)).tolist(), S / np.outer(own, own)


def _scale(
    counts: Mapping[ScoredAction, int], adjacency: Adjacency
) -> tuple[Float[np.ndarray, " action"], float, list[str]] | None:
    """Return what each constant policy earns, what perfection gains over them, and the right actions that occur."""
    classes = sorted({right for (right, _, _), count in counts.items() if count})
    if len(classes) < 2:
        return None
    by_class = []
    for c in classes:
        mine = [(also, count) for (right, also, _), count in counts.items() if right == c]
        credits = np.stack([credits_of(c, also, adjacency) for also, _ in mine])
        by_class.append(np.average(credits, axis=0, weights=[count for _, count in mine]))
    constant = np.mean(by_class, axis=0)  # (n_actions,)
    perfect = 1 - float(np.mean([constant[ACTIONS.index(c)] for c in classes]))
    return (constant, perfect, classes) if perfect >= 1e-9 else None  # else every right action is acceptable everywhere
