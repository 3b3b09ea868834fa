"""The result of a question that does not apply or could not be measured, with the reason."""

from __future__ import annotations

from typing import Literal

from extract.record import Record


class NotApplicable(Record):
    """A question that is not applicable, with the reason: `{"applicable": false, "reason": …}`."""

    applicable: Literal[False]
    reason: str


def not_applicable(reason: str) -> NotApplicable:
    """Return the result "not applicable" with its reason."""
    return NotApplicable(applicable=False, reason=reason)
