"""What is answered, in the shapes of OpenAI's chat completions, each choice with what the dials read and did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from serving.choice import Finish
from steering.conversation import DialReport
from steering.dial import Kind
from steering.gates import DECISIONS_PAST


class Reading(BaseModel):
    """What one dial read of the prompt, and did."""

    probability: float
    threshold: float | None  # null: off
    fired: Literal["declined", "permitted", "left"]
    overruled: bool  # left alone since the normative dial declined


Readings = dict[Kind, Reading]


class Answer(BaseModel):
    """An answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class WholeChoice(BaseModel):
    """One answer to the conversation."""

    index: int
    message: Answer
    finish_reason: Finish
    logprobs: None = None
    dials: Readings


class Usage(BaseModel):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """What POST /v1/chat/completions answers."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[WholeChoice]
    usage: Usage


class Delta(BaseModel):
    """What is new."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(BaseModel):
    """What is new of one choice; `dials` come with its first chunk and with its last."""

    index: int
    delta: Delta
    finish_reason: Finish | None = None
    logprobs: None = None
    dials: Readings | None = None


class Chunk(BaseModel):
    """One event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: Usage | None = None


class DialDefault(BaseModel):
    """A dial as it stands where a request says nothing."""

    threshold: float


class ModelCard(BaseModel):
    """The model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "refusal-probes"
    dials: dict[Kind, DialDefault]


class ModelList(BaseModel):
    """What GET /v1/models answers."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(BaseModel):
    """What GET /health answers."""

    status: Literal["ok"] = "ok"
    model: str
    waiting: int
    decoding: int


class ErrorDetail(BaseModel):
    """What went wrong; `param` names the field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorDetail


def readings(reports: Sequence[DialReport]) -> Readings:
    """Return the dials of a choice by their kind."""
    return {
        report.kind: Reading(
            probability=report.probability,
            threshold=None if math.isnan(report.threshold) else report.threshold,
            fired=DECISIONS_PAST[report.gate],
            overruled=report.overruled,
        )
        for report in reports
    }


def usage(prompt_tokens: int, completion_tokens: int) -> Usage:
    """Return what a request took."""
    return Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens,
                 total_tokens=prompt_tokens + completion_tokens)  # fmt: skip
