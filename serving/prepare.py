"""Turns a request into a rendered prompt and decoding settings, and rejects invalid requests before they queue."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import numpy as np

from extract.chat.render import Rendered, render
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from serving.choice import DecodingSettings
from serving.limits import Limits
from serving.replies import ApiError
from serving.request_schema import ChatRequest
from steering.actuator import OnsetBias
from steering.conversation import context_length
from steering.dial import Dial, read_places, reads_at


def prepare(
    asked: ChatRequest, model: ChatModel, dials: Sequence[Dial], limits: Limits, name: str, deadline: float
) -> tuple[Rendered, list[DecodingSettings]]:
    """Return a rendered conversation and the decoding settings of each choice; an ApiError names the wrong field."""
    if asked.model != name:
        raise ApiError(404, f"unknown model {asked.model!r}; this server has {name!r}", "model", "model_not_found")
    try:
        thresholds = asked.resolved(dials)
    except ValueError as error:
        raise ApiError(400, str(error), str(error).partition(":")[0]) from None
    if asked.token_readings and not any(dial.read for dial in dials):
        raise ApiError(400, "token_readings: no dial of this server reads tokens", "token_readings")
    row = _rendered(asked, model, dials, name)
    max_new_tokens = _max_new_tokens(asked, len(row.token_ids), _ahead(dials), context_length(model), limits)
    settings = [
        DecodingSettings(
            max_new_tokens=max_new_tokens,
            temperature=asked.temperature or 0.0,
            top_p=asked.top_p or 1.0,
            seed=int(seed),
            stops=asked.stops,
            thresholds=thresholds,
            deadline=deadline,
            streamed=bool(asked.stream),
            token_readings=bool(asked.token_readings),
        )
        for seed in np.random.SeedSequence(
            secrets.randbits(64) if asked.seed is None else asked.seed % 2**64
        ).generate_state(asked.n or 1, np.uint64)
    ]
    return row, settings


def _rendered(asked: ChatRequest, model: ChatModel, dials: Sequence[Dial], name: str) -> Rendered:
    messages = tuple(message.plain() for message in asked.messages)
    if messages[-1]["role"] != "user":
        raise ApiError(400, "messages: the last message must have the role user", f"messages[{len(messages) - 1}].role")
    try:
        row = render(model.tokenizer, Prompt("of this request", messages, "benign", "answer"))
    except UserError as error:
        reason = str(error).removeprefix("prompt 'of this request': ").replace(str(model.tokenizer.name_or_path), name)
        raise ApiError(400, f"messages: {reason}", "messages") from None
    for what, locus in read_places(dials).items():
        if locus.position not in row.roles:
            raise ApiError(400, f"messages: {reads_at(what, locus)}, which they lack", "messages")
    return row


def _ahead(dials: Sequence[Dial]) -> int:
    """Return how many tokens after the prompt the dials read, to compute the probabilities of openings."""
    prefixes = [dial.actuator.prefixes for dial in dials if dial.read is None and isinstance(dial.actuator, OnsetBias)]
    return max((len(prefix) - 1 for each in prefixes for prefix in each), default=0)


def _max_new_tokens(asked: ChatRequest, n_prompt: int, n_ahead: int, context: int | None, limits: Limits) -> int:
    room = (context or math.inf) - n_prompt
    if room < max(1, n_ahead):
        raise ApiError(
            400,
            f"messages: they have {n_prompt} tokens; the model's context is {context} tokens, including the answer",
            "messages",
            "context_length_exceeded",
        )
    if asked.max_tokens and asked.max_completion_tokens and asked.max_tokens != asked.max_completion_tokens:
        raise ApiError(400, "max_tokens: differs from max_completion_tokens, its newer name", "max_tokens")
    wanted, param = asked.token_limit, "max_completion_tokens" if asked.max_completion_tokens else "max_tokens"
    if wanted is None:
        return int(min(limits.max_tokens, room))
    if wanted > limits.max_tokens:
        raise ApiError(400, f"{param}: {wanted} is more than this server's limit of {limits.max_tokens}", param)
    if wanted > room:
        raise ApiError(
            400,
            f"{param}: {wanted} does not fit: the messages have {n_prompt} tokens of the model's context of {context}, "
            f"so at most {room} are left",
            param,
            "context_length_exceeded",
        )
    return wanted
