"""A scorecard in lines for the terminal: the three rates always together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scoring.wording import RATE_MEANING, percent

FIELD_MEANING = {
    "intent": "intent: taken for what it is",
    "context": "context: not misled by single words",
    "proportionality": "proportionality: credit of the action",
    "relevance": "relevance: answers what was asked",
    "outcome": "outcome: no harm, no new error",
}


def card_lines(card: dict[str, Any]) -> Iterator[str]:
    """Yield what a person wants to know first; scorecard.json has the rest."""
    for action, count in card["actions"].items():
        yield f"{action:<20} {count}"
    if card["rates"]:
        yield ""
        for key, meaning in RATE_MEANING.items():
            yield f"{meaning:<52} {percent(card['rates'], key)}, n {card['rates'][f'{key}_n']}"
        for what, declined in card["declines"].items():
            yield f"{'declined, ' + what:<52} {declined['refuse']} refused, {declined['abstain']} abstained"
    right = card["right_action"]
    if right["score"] is not None:
        low, high = right["score_ci"]
        meaning = "right-action score (0: any constant policy, 1: right)"
        yield f"{meaning:<52} {right['score']:.2f} [{low:.2f}, {high:.2f}], n {right['n']}"
    for name, field in card["fields"].items():
        if field["mean"] is not None:
            low, high = field["ci"]
            yield f"{FIELD_MEANING[name]:<52} {field['mean']:.2f} [{low:.2f}, {high:.2f}], n {field['n']}"
    for column, n in card["by_left_out"].items():
        yield f"Note: {n} of the rarest values of '{column}' are left out of the breakdowns"
    for what, counted in card["input"].items():
        more = ["…"] if counted["n"] > len(counted["first"]) else []
        named = f" ({', '.join([*counted['first'], *more])})" if counted["first"] else ""
        yield f"Note: {what}: {counted['n']}{named}"
