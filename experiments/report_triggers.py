"""The page's section on word against intent: what stands beside the verdict, and which words fired which refusals."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from experiments.trigger_findings import finding_lines
from experiments.trigger_text import NOTABLE


def triggers_section(triggers: Mapping[str, Any]) -> str:
    """Return the findings, a line each, and refused requests with the words that speak for refusing set off."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in finding_lines(triggers))
    examples = triggers.get("attribution", {}).get("examples", [])
    if not examples:
        return lines
    head = (f"Which word fired: how much of the onset log-odds of refusing goes when a word is left out, in nats, "
            f"where it is {NOTABLE:g} or more. Where none is set off, no single word fired it.")  # fmt: skip
    shown = "".join(f"<li>{marked(example)}</li>" for example in examples)
    return f"{lines}<p>{escape(head)}</p><ul>{shown}</ul>"


def marked(example: Mapping[str, Any]) -> str:
    """Return one request as HTML; everything that comes from data is escaped."""
    words = [
        f"<mark>{escape(word)} <small>{score:+.1f}</small></mark>" if score >= NOTABLE else escape(word)
        for word, score in zip(example["words"], example["scores"], strict=True)
    ]
    return f"<em>{escape(example['label'])}</em>: {' '.join(words)}"
