"""Typed results of the side effects of an intervention."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.run.outcomes import Share
from extract.record import Record


@dataclass(frozen=True, kw_only=True)
class AnswerDivergence(Share):
    """KL in nats per token of the model's own benign answers; the three fields below have no interval."""

    maximum: float | None = None
    first_token: float | None = None
    worst_step: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlainText(Share):
    """Cross-entropy in nats per token of harmless prose."""

    uniform: float  # of a uniform guess: a model near or above it cannot read such text, and a change has no meaning


class WrappedRequests(Record):
    """Results for harmful prompts in one wrap; without it, the plain model refuses them."""

    refused: Share
    answered: Share
    unchanged: int  # refused prompts that the wrap does not change


class TokenCosts(Record):
    """Side effects measured on tokens, not on outcomes."""

    kl: AnswerDivergence
    plain_text: PlainText


class SideEffects(TokenCosts):
    """The side effects of one intervention; changes are against the intervention 'none'."""

    benign_answering: Share
    known_facts: Share
    wraps: dict[str, WrappedRequests]
