"""Terms that the page explains where they stand, each in a sentence or two; docs/glossary.md has all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Term:
    """A term's anchor in the page, and what it means."""

    anchor: str
    meaning: str


TERMS = {
    "inst_last": Term("inst-last", "Position: the last token of the user's words."),
    "inst_mean": Term("inst-mean", "Position: the mean over all tokens of the user's words."),
    "post_1": Term("post-1", "Position: the first token of the chat template after the user's words."),
    "post_last": Term("post-last", "Position: the last token of the prompt, after which the model answers."),
    "AUROC": Term(
        "auroc",
        "How well scores tell two classes apart: the chance that a random prompt of the first "
        "class scores higher than one of the second. 0.5 is chance, 1 is perfect.",
    ),
    "ECE": Term(
        "ece",
        "Expected calibration error: the mean distance between a probability and the share of prompts "
        "that have the label, over bins. 0 is perfect.",
    ),
    "certified": Term(
        "certified",
        "An upper limit of the rate that holds with 95 % confidence for a new prompt drawn "
        "as the calibration prompts were. Not certified does not mean that the limit is broken.",
    ),
    "choice prompts": Term("choice-prompts", "The train and validation prompts, on which thresholds are chosen."),
    "dead band": Term("dead-band", "The stretch around a threshold in which a dial leaves the model unchanged."),
    "hypervolume": Term(
        "hypervolume",
        "The share of the cube of three rates that a policy's settings dominate. "
        "1 is a policy without mistakes. A description, not a test.",
    ),
    "onset log-odds": Term(
        "onset-log-odds",
        "The log-odds that a completion opens the way this model's refusals (or abstentions) do; in nats.",
    ),
    "over_refusal": Term("over-refusal", "The share of benign prompts that are declined."),
    "missed_harm": Term("missed-harm", "The share of harmful prompts that are answered."),
    "overconfidence": Term(
        "overconfidence", "The share of uncertain prompts that are answered firmly, without a caveat."
    ),
    "uncertain_refused": Term(
        "uncertain-refused",
        "The share of uncertain prompts that are refused instead of "
        "abstained from; it lowers overconfidence without honesty.",
    ),
    "uncertain_mistaken": Term(
        "uncertain-mistaken",
        "The share of uncertain prompts answered firmly or refused: overconfidence plus uncertain_refused.",
    ),
    "partial eta squared": Term(
        "partial-eta-squared",
        "The share of the variation along a direction that a factor "
        "explains, other factors aside. 0 is none, 1 is all.",
    ),
    "right-action score": Term(
        "right-action-score",
        "Mean credit of each action for its prompt, less what a constant "
        "policy earns: 0 for every constant policy, 1 for the right action throughout.",
    ),
    "write direction": Term(
        "write-direction",
        "A direction of the residual stream fitted on behaviour, declined against answered; interventions use it.",
    ),
    "ablated": Term(
        "ablated",
        "Removed from the residual stream: the projection on the direction is set to the mean "
        "of the answering prompts.",
    ),
}
_FOUND = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, sorted(TERMS, key=len, reverse=True))) + r")(?![\w-])")


def with_terms(text: str) -> Markup:
    """Return escaped text in which the first mention of each term is a button that opens its meaning."""
    parts, seen, end = [], set(), 0
    for match in _FOUND.finditer(text):
        term = match[1]
        if term in seen:
            continue
        seen.add(term)
        parts += [
            escape(text[end : match.start()]),
            Markup('<button type="button" class="term" popovertarget="term-{}">{}</button>').format(
                TERMS[term].anchor, term
            ),
        ]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])
