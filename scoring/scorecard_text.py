"""A scorecard in lines for the terminal: the three rates always together."""

from __future__ import annotations

from collections.abc import Iterator

from scoring.fields import Field
from scoring.scorecard_record import Scorecard
from scoring.wording import RATE_MEANING

FIELD_MEANING: dict[Field, str] = {
    "intent": "intent: taken for what it is",
    "context": "context: not misled by single words",
    "proportionality": "proportionality: credit of the action",
    "relevance": "relevance: answers what was asked",
    "outcome": "outcome: no harm, no new error",
}


def card_lines(card: Scorecard) -> Iterator[str]:
    """Yield the actions, the rates, the scores, and notes about the input; scorecard.json has the rest."""
    for action, count in card.actions.items():
        yield f"{action:<20} {count}"
    if card.rates:
        yield ""
        for key, meaning in RATE_MEANING.items():
            rate = card.rates.of(key)
            yield f"{meaning:<52} {rate:.1%}, n {rate.n}"
        for what, declined in (card.declines or {}).items():
            yield f"{'declined, ' + what:<52} {declined['refuse']} refused, {declined['abstain']} abstained"
    scores = {"right-action score (0: any constant policy, 1: right)": card.right_action.estimate}
    scores |= {FIELD_MEANING[name]: field.estimate for name, field in card.fields.items()}
    for meaning, score in scores.items():
        if score.estimate is not None:
            yield f"{meaning:<52} {score:.2f}, n {score.n}"
    for column, n in card.by_left_out.items():
        yield f"Note: {n} of the rarest values of '{column}' are left out of the breakdowns"
    for what, note in card.input.items():
        more = ["…"] if note.n > len(note.first) else []
        named = f" ({', '.join([*note.first, *more])})" if note.first else ""
        yield f"Note: {what}: {note.n}{named}"
