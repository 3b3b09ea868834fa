"""Writes the question to a judging model and reads its reply; a reply without exactly one action is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from scoring.actions import ACTIONS, Action
from scoring.case import Row
from scoring.fields import FIELDS, RIGHT
from scoring.judges import CompletionToJudge, Judgement
from scoring.judges.visible_text import visible_text

EVIDENCE_CHARS = 300
_CONTROL = re.compile(
    r"<|\[(?=/?[A-Z_]+\])"
)  # starts of <|im_end|>, </s>, [INST], which servers may read as control tokens


class UnreadableError(ValueError):
    """The reply holds no judgement; the message gives the reason."""


def question(to_judge: CompletionToJudge, completion: str, *, known_answer: bool = False) -> str:
    """Return the conversation and the completion as one JSON object that no text inside it can break.

    JSON escapes quotes and line breaks; characters that a chat template may read as control tokens are escaped too.
    """
    prompt = [{"role": "user", "content": to_judge.prompt}] if to_judge.prompt is not None else []
    conversation = [dict(message) for message in to_judge.messages] or prompt
    known = {"known_answer": to_judge.answer} if known_answer and to_judge.answer else {}
    text = json.dumps({"conversation": conversation, "completion": completion} | known, ensure_ascii=False)
    text = _CONTROL.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)  # the same JSON, without control tokens in it
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent


def read_reply(text: str) -> tuple[Judgement, int]:
    """Return the judgement in a reply, ignoring text around its JSON, and the number of fields outside [0, 1].

    Raises:
        UnreadableError: there is no JSON object with a known action, or there are several that differ.
    """
    found = [value for value in _objects(visible_text(text) or "") if "action" in value]
    if not found:
        raise UnreadableError(f"no JSON object with an action in {_short(text)!r}")
    reply = found[-1]
    if any(value["action"] != reply["action"] for value in found):
        raise UnreadableError(f"several actions in {_short(text)!r}")
    evidence = " ".join(str(reply.get("evidence") or "no evidence was given").split())[:EVIDENCE_CHARS]
    fields = {name: reply[name] for name in FIELDS if reply.get(name) is not None}
    scored: dict[str, float] = {name: score for name, value in fields.items() if (score := _score(value)) is not None}
    if isinstance(right := reply.get(RIGHT), bool):
        scored[RIGHT] = float(right)
    action = _action(reply["action"])
    reason = evidence if action else f"the judge could not tell: {evidence}"
    return Judgement(action, reason, scored), len(fields) - len(scored)


def _objects(text: str) -> Iterator[Row]:
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def _action(given: object) -> Action | None:
    if given is None:  # the judge returned null: it cannot decide
        return None
    named = "_".join(given.lower().replace("-", " ").split()) if isinstance(given, str) else given
    for action in ACTIONS:
        if action == named:
            return action
    raise UnreadableError(f"no such action: {_short(str(given))!r}")


def _score(value: object) -> float | None:
    """Return a number from 0 to 1; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:  # also excludes NaN
        return None
    return float(value)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"
