"""What a request to vLLM says of the dials, and how it is passed on to the process that computes.

A request without thresholds is not touched. One with thresholds takes no keys and values from the prefix cache and
leaves none that others could take: what it writes from its last prompt token on is in them.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from extract.chat.render import Rendered
from serving.vllm_plugin.rows import Asked
from steering.dial import Dial, Kind, ReadName, category_read, read_places

FIELD = "refusal_dials"  # of vLLM's extra_args
KINDS = get_args(Kind)
OFF = "off"
Fields = dict[str, Any]  # unchecked, of a request's JSON or of vLLM's own


@dataclass(frozen=True)
class Suffix:
    """The tokens of a template after the user's last words, and how far before its end is read."""

    tokens: tuple[int, ...]
    before_end: Mapping[ReadName, int]  # 0: the last prompt token


def thresholds_of(body: Fields, dials: Sequence[Dial]) -> dict[Kind, float] | None:
    """Return the thresholds that a request's fields give; None where it names neither.

    NaN is off; a dial that is absent has its own threshold, or that of the prompt's category.

    Raises:
        ValueError: a threshold is no number from 0 to 1, or there is no such dial.
    """
    if not any(f"{kind}_threshold" in body for kind in KINDS):
        return None
    found: dict[Kind, float] = {}
    present = {dial.kind for dial in dials}
    for kind in KINDS:
        given, name = body.get(f"{kind}_threshold"), f"{kind}_threshold"
        if given is not None and kind not in present:
            raise ValueError(f"{name}: this server has no {kind} dial")
        if given == OFF:
            found[kind] = math.nan
        elif given is None:
            continue
        elif not _is_number(given) or not 0 <= given <= 1:
            raise ValueError(f"{name}: expected a number from 0 to 1, null (the dial's) or {OFF!r}; got {given!r}")
        else:
            found[kind] = float(given)
    return found


def extra_args(key: str, thresholds: Mapping[Kind, float], read_at: Mapping[ReadName, Sequence[int]] | None) -> Fields:
    """Return what vLLM passes on as `SamplingParams.extra_args`.

    Args:
        key: under which the readings can be asked for.
        thresholds: as `thresholds_of` returns them.
        read_at: the prompt tokens that are read, as `tokens_read` returns them; None: as the template's suffix says.
    """
    off = [kind for kind, tau in thresholds.items() if math.isnan(tau)]
    places = None if read_at is None else {what: list(places) for what, places in read_at.items()}
    on = {kind: tau for kind, tau in thresholds.items() if kind not in off}
    return {FIELD: {"key": key, "thresholds": on, "off": off, "read_at": places}}


def tokens_read(dials: Sequence[Dial], row: Rendered) -> dict[ReadName, tuple[int, ...]]:
    """Return the tokens of a prompt that each dial reads, and those that its category is read from."""
    return {what: tuple(row.roles[locus.position]) for what, locus in read_places(dials).items()}


def new_key() -> str:
    """Return a key that no other request has."""
    return secrets.token_hex(12)


def check(given: Any, prompt: Sequence[int] | None, dials: Sequence[Dial], suffix: Suffix | None) -> None:
    """Complete a request's `extra_args` field in place: which of its tokens are read.

    Raises:
        ValueError: the field has another form than `extra_args` gives it, the prompt is not of the model's chat
            template, or lacks a place that a dial reads.
    """
    if not _is_field(given):
        raise ValueError(
            f"{FIELD}: expected what serving.vllm_plugin.request.extra_args returns, got {given!r:.80}; "
            "in a request give normative_threshold and epistemic_threshold instead"
        )
    if prompt is None:
        raise ValueError("dials need a prompt of tokens or text, not of embeddings")
    thresholds, places = given["thresholds"], given.get("read_at")
    for kind, tau in thresholds.items():
        if not _is_number(tau) or not 0 <= tau <= 1:
            raise ValueError(f"{kind}_threshold: expected a number from 0 to 1, got {tau!r}")
    if places is None:
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
        given["read_at"] = {what: [len(prompt) - 1 - n] for what, n in suffix.before_end.items()}
        return
    left = [dial for dial in dials if dial.kind not in thresholds and dial.kind not in given["off"]]
    for what in read_places(dials):
        at = places.get(what)
        if what == "category" and what not in places and category_read(left) is None:
            continue  # no threshold is left to it
        if not at or not all(0 <= place < len(prompt) for place in at):
            reads = "the category is read from" if what == "category" else f"the {what} dial reads"
            raise ValueError(f"{reads} tokens {at} of a prompt of {len(prompt)}")


def _is_field(given: Any) -> bool:
    """Return whether a field of `extra_args`, which any client can send, has the types that it must have."""
    if not isinstance(given, dict) or set(given) != {"key", "thresholds", "off", "read_at"}:
        return False
    thresholds, off, read_at = given["thresholds"], given["off"], given["read_at"]
    if not isinstance(given["key"], str) or not isinstance(thresholds, dict) or not isinstance(off, list):
        return False
    if any(kind not in KINDS for kind in (*thresholds, *off)):
        return False
    return read_at is None or (isinstance(read_at, dict) and all(map(_are_places, read_at.values())))


def _are_places(given: Any) -> bool:
    return isinstance(given, list) and all(type(place) is int for place in given)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def asked(given: Fields) -> Asked:
    """Return what the computing process needs of a checked field."""
    thresholds = {kind: float(tau) for kind, tau in given["thresholds"].items()} | dict.fromkeys(given["off"], math.nan)
    return Asked(thresholds, {what: tuple(places) for what, places in given["read_at"].items()}, given["key"])
