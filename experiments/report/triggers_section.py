"""The page's section on word against intent: the findings, and which words fired which refusals."""

from __future__ import annotations

from html import escape
from itertools import accumulate

from experiments.report.markup import data, once_asked, shortened
from experiments.triggers.results import NOTABLE, AttributedRequest, TriggerFindings
from experiments.triggers.text import examples, finding_lines

MOST_CHARACTERS = 2000  # of a request that is shown by words


def triggers_section(findings: TriggerFindings) -> str:
    """Return the findings, a line each, and refused requests with the words that speak for refusing set off."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in finding_lines(findings))
    requests = examples(findings)
    if not requests:
        return lines
    head = (f"Which word fired: how much of the onset log-odds of refusing goes when a word is left out, in nats, "
            f"where it is {NOTABLE:g} or more. Where none is set off, no single word fired it.")  # fmt: skip
    shown = "".join(f"<li>{marked(request)}</li>" for request in requests)
    return f"{lines}<p>{escape(head)}</p><ul>{shown}</ul>"


def marked(request: AttributedRequest) -> str:
    """Return one request as HTML; everything that comes from data is escaped."""
    words, label = request.words, request.label
    n = sum(end <= MOST_CHARACTERS for end in accumulate(len(word) + 1 for word in words)) or 1
    shown = [
        f"<mark>{data(shortened(word, 80))} <small>{score:+.1f}</small></mark>" if score >= NOTABLE
        else data(shortened(word, 80))
        for word, score in zip(words[:n], request.scores[:n], strict=True)
    ]  # fmt: skip
    left_out = f" … ({len(words) - n:,} words more)" if len(words) > n else ""
    return f"<em>{escape(label)}</em>: {once_asked(label, ' '.join(shown) + left_out)}"
