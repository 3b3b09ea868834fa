"""Reads the turns of a conversation in chat formats, where content is text or a list of parts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from extract.errors import UserError

_TEXT_PARTS = ("text", "output_text", "input_text", "refusal")  # other parts are thoughts, tools and pictures


def content_text(content: object) -> str | None:
    """Return the text of a content, without thoughts and tools; None if it is neither text nor a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        return None
    parts = [_part(part) for part in content]
    return None if None in parts else "\n".join(text for text, is_text in filter(None, parts) if is_text)


def _part(part: object) -> tuple[str, bool] | None:
    """Return a part's text and whether it is a text part; None if it is not a valid part."""
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return None
    text = part.get("refusal") if part["type"] == "refusal" else part.get("text")
    return (text, True) if part["type"] in _TEXT_PARTS and isinstance(text, str) else ("", False)


def turns(given: object, where: str) -> list[dict[str, str]]:
    """Return messages with `role` and `content` only; in a table the list is JSON text.

    Raises:
        UserError: the value is not a list of messages; names the place.
    """
    held = _loaded(given)
    if not isinstance(held, list | tuple):
        raise UserError(f"{where}: field 'messages' is {type(given).__name__}; expected a list of {{role, content}}")
    return [_turn(message, where) for message in held]


def _loaded(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except json.JSONDecodeError:
        return None


def _turn(message: object, where: str) -> dict[str, str]:
    role = message.get("role") if isinstance(message, Mapping) else None
    content = content_text(message.get("content")) if isinstance(message, Mapping) else None
    if content == "" and isinstance(message, Mapping) and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    if not isinstance(role, str) or content is None:
        raise UserError(f"{where}: field 'messages': each needs a role, and content that is text or a list of parts")
    return {"role": role, "content": content}


def is_transcript(given: object) -> bool:
    """Return whether messages end with the assistant's turn."""
    held = _loaded(given)
    last = held[-1] if isinstance(held, list | tuple) and held else None
    return isinstance(last, Mapping) and last.get("role") == "assistant"
