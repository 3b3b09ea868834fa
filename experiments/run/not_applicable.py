"""What a result holds where a question does not arise or could not be measured: not applicable, and why."""

from __future__ import annotations

from typing import Literal

from extract.record import Record


class NotApplicable(Record):
    """A question without an answer, and why there is none: `{"applicable": false, "reason": …}`."""

    applicable: Literal[False]
    reason: str


def not_applicable(reason: str) -> NotApplicable:
    """Return that a question could not be asked."""
    return NotApplicable(applicable=False, reason=reason)
