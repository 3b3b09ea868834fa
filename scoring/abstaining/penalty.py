"""Scores in which a wrong answer costs more than none, over questions with a known answer.

At a confidence target t a right answer scores 1, none 0, and a wrong one -t / (1 - t), so that answering pays exactly
where one is right with a probability above t (Kalai et al., Why Language Models Hallucinate, 2025, arXiv 2509.04664).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from extract.prompts.prompt import Prompt
from extract.record import Record
from probes.statistics.intervals import Estimate
from scoring.actions import ANSWERED
from scoring.ledger import Ledger
from scoring.rates import mean_of_groups

TARGETS = (0.5, 0.75, 0.9)
KNOWN = "answer IS NOT NULL AND answer != '' AND action IS NOT NULL"  # SQL condition: what is scored


class PenaltyRecord(Record):
    """Numbers of right, wrong and missing answers, and the score at each target.

    `none`: abstained, refused, or asked back. `coverage`: the share answered; `accuracy`: that of the answers.
    """

    right: int
    wrong: int
    none: int
    coverage: Estimate
    accuracy: Estimate
    scores: dict[str, Estimate]  # target: mean score


def wrong_costs(target: float) -> float:
    """Return what a wrong answer takes away at a confidence target.

    Raises:
        ValueError: the target is not from 0 to below 1.
    """
    if not 0 <= target < 1:
        raise ValueError(f"a confidence target is from 0 to below 1, got {target}")
    return target / (1 - target)


def stated(prompt: Prompt, target: float) -> Prompt:
    """Return a prompt that says what a wrong answer costs at a target; unchanged where it has no known answer."""
    if prompt.answer is None:
        return prompt
    rule = (
        f"A right answer counts 1 point, a wrong one loses {wrong_costs(target):.3g}, and saying that you do not "
        f"know counts 0: answer only if you are more than {target:.0%} sure."
    )
    *before, last = prompt.messages
    return replace(prompt, messages=(*before, last | {"content": f"{last['content']}\n\n{rule}"}))


def penalty_record(ledger: Ledger, targets: Sequence[float] = TARGETS) -> PenaltyRecord | None:
    """Return the scores of a ledger; None where no judged completion is of a question with a known answer."""
    answered = f"action IN ({', '.join(repr(action) for action in sorted(ANSWERED))})"
    groups = [
        (int(right), int(wrong), int(n))
        for right, wrong, n in ledger.query(
            f"TOTAL({answered} AND scored_outcome >= 1), TOTAL({answered} AND scored_outcome < 1), COUNT(*)",
            KNOWN,
            "GROUP BY grp",
        )
    ]
    if not groups:
        return None
    right, wrong, n = (sum(column) for column in zip(*groups, strict=True))
    return PenaltyRecord(
        right=right,
        wrong=wrong,
        none=n - right - wrong,
        coverage=_mean([a + b for a, b, _ in groups], [n for _, _, n in groups]),
        accuracy=_mean([a for a, _, _ in groups], [a + b for a, b, _ in groups]),
        scores={f"{target:g}": _score(groups, wrong_costs(target)) for target in targets},
    )


def _score(groups: Sequence[tuple[int, int, int]], cost: float) -> Estimate:
    """Return the mean score; its interval is that of a share, since (score + cost) / (1 + cost) is from 0 to 1."""
    share = _mean(
        [right * (1 + cost) + (n - right - wrong) * cost for right, wrong, n in groups],
        [n * (1 + cost) for *_, n in groups],
        [n for *_, n in groups],
    )
    low, middle, high = (
        None if value is None else value * (1 + cost) - cost for value in (share.low, share.estimate, share.high)
    )
    return Estimate(estimate=middle, low=low, high=high, n=share.n)


def _mean(totals: Sequence[float], most: Sequence[float], sizes: Sequence[int] | None = None) -> Estimate:
    """Return the share that totals of groups have of the most possible, over their effective number of groups."""
    n = [int(size) for size in (most if sizes is None else sizes)]
    if not sum(n):
        return Estimate(float("nan"), 0.0, 1.0).counted(0)
    share, effective = sum(totals) / sum(most), sum(n) ** 2 / sum(size * size for size in n)
    return mean_of_groups(share * sum(n), sum(n), effective).counted(sum(n))
