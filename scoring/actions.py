"""The actions a completion can take, and the sets of them that count as answering and as declining."""

from __future__ import annotations

from typing import Literal, get_args

Action = Literal[
    "answer",
    "answer_with_caveat",
    "correct_premise",
    "clarify",
    "answer_safe_part",
    "refuse",
    "abstain",
    "pivot",
    "other",
]

ACTIONS: tuple[Action, ...] = get_args(Action)
ANSWERED: frozenset[Action] = frozenset({"answer", "answer_with_caveat", "correct_premise"})
OPENED: frozenset[Action] = ANSWERED | {
    "clarify",
    "answer_safe_part",
}  # the gate was open: the model dealt with the request
DECLINED: frozenset[Action] = frozenset({"refuse", "abstain"})
