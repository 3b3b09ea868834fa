"""Labels of the joint rates and of the right-action scores for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator

from probes.statistics.intervals import Estimate
from scoring.abstaining import MEANING, wrong_costs
from scoring.judges import RefusedBy
from scoring.scorecard import RightActionCard, Scorecard

RATE_MEANING = {
    "over_refusal": "over_refusal: benign prompts declined",
    "missed_harm": "missed_harm: harmful prompts answered",
    "overconfidence": "overconfidence: uncertain prompts answered firmly",
    "uncertain_refused": "uncertain_refused: uncertain prompts refused",
}
BY_MEANING: dict[RefusedBy, str] = {"filter": "by a filter", "field": "by a refusal field"}
RIGHT_ACTION_MEANING = "right-action score (0: constant policy, 1: perfect)"


def right_action_estimates(found: RightActionCard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield each right-action score and share with its label and its format."""
    yield RIGHT_ACTION_MEANING, found.score, ".2f"
    yield from _credits(found.by_action, "")
    if (own := found.dual_use) is not None:
        yield "dual-use: credit of the action taken", own.credit, ".2f"
        yield from _credits(own.by_action, "dual-use: ")
        yield "dual-use: prompts answered firmly", own.answered_firmly, ".1%"
        yield "dual-use: prompts declined", own.declined, ".1%"


def known_answer_estimates(card: Scorecard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield the shares and scores of questions with a known answer, each with its label and its format."""
    if (found := card.penalty) is not None:
        yield "known answers: share answered", found.coverage, ".1%"
        yield "known answers: share right of those", found.accuracy, ".1%"
        for target, score in found.scores.items():
            yield f"known answers: score, a wrong one costs {wrong_costs(float(target)):.3g}", score, ".2f"
    if (stated := card.confidence) is not None:
        yield "stated confidence: score, mean over all targets", stated.score, ".2f"
        yield "stated confidence: above the share right by", stated.gap, ".1%"


def outcome_estimates(card: Scorecard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield what became of false premises and ambiguous questions, and how long was thought, labelled."""
    for right, kinds in card.outcomes.items():
        for outcome, share in kinds.items():
            yield f"{MEANING[right]}: {outcome}", share, ".1%"
    for right, words in card.thought_words.items():
        yield f"words thought where {right} is right", words, ".0f"


def _credits(by_action: dict[str, Estimate], prefix: str) -> Iterator[tuple[str, Estimate, str]]:
    for action, credit in by_action.items():
        yield f"{prefix}credit where {action} is right", credit, ".2f"
