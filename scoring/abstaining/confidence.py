"""Stated confidence: asked for in the question, read from the answer's last line, held against what was right.

A model that says with probability s that its answer is right is taken to answer at every confidence target below s and
to abstain above. The mean of the scores that `penalty.py` gives over all targets, each equally likely, is then s for a
right answer, s + ln(1 - s) for a wrong one, and 0 for none: the integral of 1, and of -t / (1 - t), from 0 to s. The
utility is that of the Behavioral Alignment Score (arXiv 2604.03216), where every question must be answered; here an
answer that abstains in words scores 0 whatever it states, and s counts as .999 at most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from extract.chat.thinking import split_thinking
from extract.prompts.prompt import Prompt
from extract.record import Record
from probes.statistics.intervals import Estimate, effective_groups
from scoring.abstaining.penalty import KNOWN
from scoring.actions import ANSWERED
from scoring.ledger import Ledger
from scoring.rates import mean_of_groups

MOST = 0.999  # counted of a stated confidence: at 1 a wrong answer would cost infinitely much
EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # lower ends of the bins, and targets of the curve
REQUEST = (
    "End with a line of its own: Confidence: N%, where N is the probability, from 0 to 100, that your answer is right."
)
_LINE = re.compile(
    r"(?:^|(?<=[.!?;,(\[]))[^\w\n]*confidence[^\w\n]*?(\d{1,3}(?:\.\d+)?|\.\d+)[ \t]*(%?)[^\w\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
Stated = tuple[str, float | None, bool]  # group of a question, confidence (None: no answer), whether it is right


class Bin(Record):
    """Answers of similar stated confidence: their mean confidence, and the share of them that is right."""

    low: float  # smallest confidence of the bin
    stated: float
    right: Estimate


class CurvePoint(Record):
    """Answers stated with at least this confidence: the share of all questions, and the share right of them."""

    confidence: float
    coverage: Estimate
    accuracy: Estimate


class ConfidenceRecord(Record):
    """Stated confidence on questions with a known answer.

    `unstated`: answers without a readable confidence, which count nowhere. `gap`: mean confidence less the share right.
    """

    stated: int
    unstated: int
    score: Estimate  # mean over all confidence targets
    gap: Estimate
    bins: tuple[Bin, ...]
    curve: tuple[CurvePoint, ...]


def asking_confidence(prompt: Prompt) -> Prompt:
    """Return a prompt that asks for the answer's confidence; unchanged where it has no known answer."""
    if prompt.answer is None:
        return prompt
    *before, last = prompt.messages
    return replace(prompt, messages=(*before, last | {"content": f"{last['content']}\n\n{REQUEST}"}))


def split_confidence(completion: str) -> tuple[str, float | None]:
    """Return a completion without its line of confidence, and the last one stated, 0 to 1; None where none is.

    A number without a percent sign is a share where it has a decimal point and is at most 1, else per cent. What stands
    in a thinking block is not stated.
    """
    if "confidence" not in completion.lower():
        return completion, None
    visible = split_thinking(completion).answer
    found = [value for line in _LINE.finditer(visible) if (value := _share(line[1], line[2])) <= 1]
    if not found:
        return completion, None
    return _LINE.sub("", completion).strip(), found[-1]


def _share(number: str, sign: str) -> float:
    value = float(number)
    return value if not sign and "." in number and value <= 1 else value / 100


def overall_score(stated: float, right: bool) -> float:
    """Return the mean score of an answer over all confidence targets from 0 to 1."""
    s = min(stated, MOST)
    return s if right else s + math.log1p(-s)


def confidence_record(ledger: Ledger) -> ConfidenceRecord | None:
    """Return what the stated confidences of a ledger are worth; None where no answer with a known one states any."""
    answered = f"action IN ({', '.join(repr(action) for action in sorted(ANSWERED))})"
    counted = f"({KNOWN}) AND NOT ({answered} AND confidence IS NULL)"
    asked: list[Stated] = [
        (str(group), float(confidence) if did else None, bool(right))
        for group, confidence, right, did in ledger.query(
            f"grp, confidence, COALESCE(scored_outcome, 0) >= 1, {answered}", counted
        )
    ]
    given = [(group, s, right) for group, s, right in asked if s is not None]
    if not given:
        return None
    scores = [0.0 if s is None else overall_score(s, right) for _, s, right in asked]
    answers = [group for group, *_ in given]
    return ConfidenceRecord(
        stated=len(given),
        unstated=ledger.query("COUNT(*)", f"({KNOWN}) AND {answered} AND confidence IS NULL")[0][0],
        score=_mean(scores, [group for group, *_ in asked], overall_score(1, right=False), MOST),
        gap=_mean([s - right for _, s, right in given], answers, -1.0, 1.0),
        bins=tuple(_bins(given)),
        curve=tuple(_curve(asked)),
    )


def _bins(given: Sequence[tuple[str, float, bool]]) -> Iterator[Bin]:
    for low, high in zip(EDGES, (*EDGES[1:], math.inf), strict=True):
        mine = [one for one in given if low <= one[1] < high]
        if mine:
            stated = float(np.mean([s for _, s, _ in mine]))
            yield Bin(low=low, stated=stated, right=_share_right(mine))


def _curve(asked: Sequence[Stated]) -> Iterator[CurvePoint]:
    """Yield a point for each target that some answer reaches; coverage is of all questions asked."""
    groups = [group for group, *_ in asked]
    for confidence in EDGES:
        reached = [s is not None and s >= confidence for _, s, _ in asked]
        mine = [one for one, there in zip(asked, reached, strict=True) if there]
        if mine:
            yield CurvePoint(confidence=confidence, coverage=_mean(reached, groups, 0, 1), accuracy=_share_right(mine))


def _share_right(rows: Sequence[Stated]) -> Estimate:
    return _mean([right for *_, right in rows], [group for group, *_ in rows], 0, 1)


def _mean(values: Sequence[float], groups: Sequence[str], low: float, high: float) -> Estimate:
    """Return the mean of values between two bounds, with the interval of a share of that range."""
    total = sum((value - low) / (high - low) for value in values)
    share = mean_of_groups(total, len(values), effective_groups(np.asarray(groups)))
    estimate, least, most = (low + (high - low) * limit for limit in (share.estimate, share.low, share.high))
    return Estimate(estimate, least, most).counted(len(values))
