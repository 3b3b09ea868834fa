"""The page's section on word against intent: what stands beside the verdict, and which words fired which refusals."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import accumulate
from typing import Any

from experiments.report.page.markup import data, once_asked, shortened
from experiments.triggers.findings import finding_lines
from experiments.triggers.text import NOTABLE

MOST_CHARACTERS = 2000  # of a request that is shown by words


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
    words, scores, label = example["words"], example["scores"], example["label"]
    n = sum(end <= MOST_CHARACTERS for end in accumulate(len(word) + 1 for word in words)) or 1
    shown = [
        f"<mark>{data(shortened(word, 80))} <small>{score:+.1f}</small></mark>" if score >= NOTABLE
        else data(shortened(word, 80))
        for word, score in zip(words[:n], scores[:n], strict=True)
    ]  # fmt: skip
    left_out = f" … ({len(words) - n:,} words more)" if len(words) > n else ""
    return f"<em>{escape(label)}</em>: {once_asked(label, ' '.join(shown) + left_out)}"
