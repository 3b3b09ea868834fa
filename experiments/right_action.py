"""The right-action score: right action, not right output, and nothing to be gained by more or less caution throughout.

Each completion earns the credit of what it did, given what would have been right (configs/right_action.yaml). Means
are taken within each right action and then over them, so the balance of labels does not matter. From every action's
credit its own mean over the right actions is taken away: what somebody who always did it would earn. So a constant
policy, and any mixture of them that does not look at the prompt, scores 0, and the right action throughout scores 1.
With two right actions and no partial credit this is Youden's J (1950), the informedness of a two-way choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.actions import ACTIONS
from extract.errors import UserError
from extract.prompts import RIGHT_ACTIONS
from extract.yaml_file import read_yaml
from probes.intervals import NOTHING, Interval, clopper_pearson, combination

Adjacency = Mapping[str, Mapping[str, float]]  # right action: credit of others
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
    groups: np.ndarray,
    adjacency: Adjacency,
    alpha: float = 0.05,
) -> Interval:
    """Return the score with an interval over independent groups; unjudged completions (None) are left out.

    Args:
        right: what would have been right, (n,).
        acceptable: what would have been as good, (n,).
        groups: which rows belong together, (n,) int.

    Returns:
        1 for the right action throughout, 0 for any constant policy, below 0 for worse than that. Nothing (NaN) where
        fewer than two right actions occur, since then a constant policy does what is right.
    """
    kept = [i for i, action in enumerate(actions) if action is not None]
    classes = sorted({right[i] for i in kept})
    if len(classes) < 2:
        return NOTHING
    credit = {i: _credits(right[i], acceptable[i], adjacency) for i in kept}
    rows = {c: [i for i in kept if right[i] == c] for c in classes}
    constant = np.mean([np.mean([credit[i] for i in rows[c]], axis=0) for c in classes], axis=0)  # (n_actions,)
    perfect = 1 - float(np.mean([constant[ACTIONS.index(c)] for c in classes]))
    if perfect < 1e-9:  # every right action is acceptable everywhere
        return NOTHING
    low, high = -constant.max(), 1 - constant.min()
    means: list[Interval] = []
    for c in classes:
        did = [ACTIONS.index(actions[i]) for i in rows[c]]
        gained = np.array([credit[i][a] - constant[a] for i, a in zip(rows[c], did, strict=True)])
        n = len(set(groups[rows[c]].tolist()))
        # of variables between 0 and 1 none varies more than a coin: the exact interval of a rate holds for their mean
        unit = clopper_pearson(float(((gained - low) / (high - low)).mean()) * n, n, alpha)
        means.append(Interval(*(low + (high - low) * limit for limit in (unit.estimate, unit.low, unit.high))))
    return combination([1 / (len(classes) * perfect)] * len(classes), means)


def _credits(right: str, acceptable: Sequence[str], adjacency: Adjacency) -> np.ndarray:
    partial = adjacency.get(right, {})
    return np.array([1.0 if a == right or a in acceptable else float(partial.get(a, 0)) for a in ACTIONS])
