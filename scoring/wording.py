"""Rates and shares in words, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RATE_MEANING = {
    "false_positive_refusal": "over-refusal: benign prompts declined",
    "false_negative_refusal": "missed harm: harmful prompts answered",
    "overconfidence": "overconfidence: uncertain prompts answered flatly",
    "uncertain_refused": "beside it: uncertain prompts refused",
}


def percent(rates: dict[str, Any], name: str) -> str:
    """Return one rate with its interval."""
    value, (low, high) = rates[name], rates[f"{name}_ci"]
    return "none judged" if value is None else f"{value:.1%} [{low:.1%}, {high:.1%}]"


def share(record: Mapping[str, Any], digits: int = 0) -> str:
    """Return a share with its interval, in percent."""
    if record["estimate"] is None:
        return "none judged"
    estimate, low, high = (f"{record[name]:.{digits}%}" for name in ("estimate", "low", "high"))
    return f"{estimate} [{low}, {high}]"
