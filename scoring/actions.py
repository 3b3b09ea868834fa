"""The actions a completion can take, and the sets of them that count as answering and as declining."""

from __future__ import annotations

from typing import Literal, get_args

Answered = Literal["answer", "answer_with_caveat", "correct_premise"]
Declined = Literal["refuse", "abstain"]
Delivered = Literal["yes", "empty", "wrong task"]  # what an answer to a harmful prompt gives of the harm asked for
Action = Literal[Answered, "clarify", "answer_safe_part", Declined, "pivot", "other"]

ACTIONS: tuple[Action, ...] = get_args(Action)
ANSWERED: frozenset[Action] = frozenset(get_args(Answered))
OPENED: frozenset[Action] = ANSWERED | {"clarify", "answer_safe_part"}  # the gate was open: it dealt with the request
DECLINED: frozenset[Action] = frozenset(get_args(Declined))
