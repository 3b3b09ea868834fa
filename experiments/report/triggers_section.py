"""The section on trigger word and intent: the findings, and the words that caused single refusals."""

from __future__ import annotations

from html import escape
from itertools import accumulate

from experiments.report.markup import escaped, hidden_if_harmful, shortened
from experiments.triggers.results import NOTABLE, AttributedRequest, TriggerFindings
from experiments.triggers.text import examples, finding_lines

MOST_CHARACTERS = 2000  # of a request in the list


def triggers_section(findings: TriggerFindings) -> str:
    """Return the findings, one line each, and refused requests with the words that cause the refusal marked."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in finding_lines(findings))
    requests = examples(findings)
    if not requests:
        return lines
    head = (f"Attribution of single requests: the fall of the onset log-odds of refusing, in nats, when a word is left "
            f"out (shown from {NOTABLE:g} on). Where none is marked, no single word causes the refusal.")  # fmt: skip
    shown = "".join(f"<li>{request_html(request)}</li>" for request in requests)
    return f"{lines}<p>{escape(head)}</p><ul>{shown}</ul>"


def request_html(request: AttributedRequest) -> str:
    """Return one request as HTML, with its words marked by their scores; all data is escaped."""
    words, label = request.words, request.label
    n = sum(end <= MOST_CHARACTERS for end in accumulate(len(word) + 1 for word in words)) or 1
    shown = [
        f"<mark>{escaped(shortened(word, 80))} <small>{score:+.1f}</small></mark>" if score >= NOTABLE
        else escaped(shortened(word, 80))
        for word, score in zip(words[:n], request.scores[:n], strict=True)
    ]  # fmt: skip
    left_out = f" … ({len(words) - n:,} words more)" if len(words) > n else ""
    return f"<em>{escape(label)}</em>: {hidden_if_harmful(label, ' '.join(shown) + left_out)}"
