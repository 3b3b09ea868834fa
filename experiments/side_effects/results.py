"""Typed results of the side effects of an intervention."""

from __future__ import annotations

from experiments.run.estimates import Share
from extract.record import Record


class AnswerDivergence(Share):
    """KL in nats a token of the model's own benign answers; the single figures have no interval."""

    maximum: float | None = None
    first_token: float | None = None
    worst_step: float | None = None


class PlainText(Share):
    """Cross-entropy in nats a token of harmless prose."""

    uniform: float  # of a model that knows nothing


class WrappedRequests(Record):
    """Plainly refused harmful prompts in one wrap."""

    refused: Share
    answered: Share
    unchanged: int  # refused prompts that the wrap leaves as they are


class SideEffects(Record):
    """What one intervention does besides; changes are against the intervention 'none'."""

    benign_answering: Share
    known_facts: Share
    kl: AnswerDivergence
    plain_text: PlainText
    wraps: dict[str, WrappedRequests]
