"""What a request to vLLM asks of the dials, how it reaches the process that computes, and what was read there.

A request without thresholds is not touched. One with thresholds takes no keys and values from the prefix cache and
leaves none that others could take: what it writes from its last prompt token on is in them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from extract.chat.render import Rendered
from serving.request_schema import AskedThresholds, describe_error
from steering.dial import Dial, Kind, ReadName, Threshold, normative_first, read_places
from steering.gates import AnswerReading, Gates, Reading

FIELD = "refusal_dials"  # of vLLM's extra_args
METHOD = "refusal_readings"  # of vLLM's workers
THRESHOLDS = tuple(f"{kind}_threshold" for kind in get_args(Kind))
ALL = 2**31 - 1  # tokens of an answer
# each dial's probability, the category, and the fields of each dial's `AnswerReading`: what a worker can send
PlacedReading = tuple[list[float], str | None, list[tuple[float | None, float, int | None] | None]]
Fields = dict[str, Any]  # unchecked, of a request's JSON or of vLLM's own


class DialRequest(BaseModel):
    """What a request asks of the dials, as vLLM passes it on in `SamplingParams.extra_args`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    key: str  # under which the readings can be asked for
    thresholds: dict[Kind, Threshold]
    read_at: dict[ReadName, tuple[int, ...]] | None = None  # prompt tokens; None: as the template's suffix says

    def extra_args(self) -> Fields:
        return {FIELD: self.model_dump()}


@dataclass(frozen=True)
class Suffix:
    """The tokens of a template after the user's last words, and how far before its end is read."""

    tokens: tuple[int, ...]
    before_end: Mapping[ReadName, int]  # 0: the last prompt token


def thresholds_of(body: Fields, dials: Sequence[Dial]) -> dict[Kind, Threshold] | None:
    """Return the threshold of each dial for a request with these fields; None where it names neither."""
    asked = {name: body[name] for name in THRESHOLDS if name in body}
    if not asked:
        return None
    try:
        return AskedThresholds.model_validate(asked).resolved(dials)
    except ValidationError as error:
        raise ValueError(describe_error(error.errors())[1]) from None


def tokens_read(dials: Sequence[Dial], row: Rendered) -> dict[ReadName, tuple[int, ...]]:
    """Return the tokens of a prompt that each dial reads, and those that its category is read from."""
    return {what: tuple(row.roles[locus.position]) for what, locus in read_places(dials).items()}


def new_key() -> str:
    """Return a key that no other request has."""
    return secrets.token_hex(12)


def checked(given: Any, prompt: Sequence[int] | None, dials: Sequence[Dial], suffix: Suffix | None) -> DialRequest:
    """Return what a field of `extra_args`, which any client can send, asks, completed by the tokens that are read."""
    try:
        asked = DialRequest.model_validate(given)
    except ValidationError:
        asked = None
    if asked is None or set(asked.thresholds) != {dial.kind for dial in dials}:
        raise ValueError(
            f"{FIELD}: expected what serving.vllm_plugin.request.DialRequest.extra_args returns, got {given!r:.80}; "
            "in a request give normative_threshold and epistemic_threshold instead"
        )
    if prompt is None:
        raise ValueError("dials need a prompt of tokens or text, not of embeddings")
    if asked.read_at is None:
        if suffix is None:
            raise ValueError(
                "these dials do not read at a fixed place before the end of every prompt; leave out both "
                "thresholds, or serve with refusal serve --engine vllm"
            )
        if tuple(prompt[-len(suffix.tokens) :]) != suffix.tokens:
            raise ValueError(
                "this prompt does not end as the model's chat template ends, so there is no telling where "
                "the dials read; leave out both thresholds"
            )
        read_at = {what: (len(prompt) - 1 - n,) for what, n in suffix.before_end.items()}
        return asked.model_copy(update={"read_at": read_at})
    by_category = any(threshold.by_category for threshold in asked.thresholds.values())
    for what in read_places(dials):
        at = asked.read_at.get(what)
        if what == "category" and at is None and not by_category:
            continue
        if not at or not all(0 <= place < len(prompt) for place in at):
            reads = "the category is read from" if what == "category" else f"the {what} dial reads"
            raise ValueError(f"{reads} tokens {at and list(at)} of a prompt of {len(prompt)}")
    return asked


def readings_of(
    dials: Sequence[Dial], probability: Sequence[float], category: str | None, thresholds: Mapping[Kind, Threshold]
) -> dict[Kind, Reading]:
    """Return each dial's reading, as it decided where the model is computed; the normative probability is first."""
    ordered = normative_first(dials)
    gates = Gates(ordered, {dial.kind: [thresholds[dial.kind]] for dial in ordered}, prompt_length=0)
    gates.readings.probability = {d.kind: np.array([p]) for d, p in zip(ordered, probability, strict=True)}
    gates.readings.category = [category]
    gates.decide_prompts()
    return gates.readings.of_prompt(0)


async def ask(
    client: Any, key: str, dials: Sequence[Dial], thresholds: Mapping[Kind, Threshold], n_tokens: int = ALL
) -> dict[Kind, Reading]:
    """Ask vLLM's engine for the readings of a request that has given a token, and of its answer's first tokens."""
    answers = [one for one in await client.collective_rpc(METHOD, args=(key, n_tokens)) if one is not None]
    if not answers:
        raise RuntimeError("the dials did not read this prompt; its answer is withheld")
    probability, category, read = answers[0]
    ordered = zip(normative_first(dials), read, strict=True)
    of_answer = {dial.kind: AnswerReading(*one) for dial, one in ordered if one is not None}
    found = readings_of(dials, probability, category, thresholds)
    return {kind: replace(one, answer=of_answer.get(kind)) for kind, one in found.items()}
