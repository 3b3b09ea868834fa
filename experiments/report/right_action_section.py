"""The section of the report on right actions, by right action, and on dual-use prompts."""

from __future__ import annotations

from experiments.report.markup import table
from experiments.report.results import RightActions
from scoring.wording import right_action_estimates

EXPLAINED = "Credit: 1 for the right action and acceptable ones, less for adjacent ones, 0 for the rest"


def right_action_section(found: RightActions, *, dials: bool) -> str:
    """Return the table of right-action scores and credits on test prompts; nothing where there are none."""
    after = {meaning: score for meaning, score, _ in right_action_estimates(found.after)}
    rows = [
        [meaning, f"{score:{spec}}", *([f"{after[meaning]:{spec}}" if meaning in after else ""] * dials), str(score.n)]
        for meaning, score, spec in right_action_estimates(found.before)
        if score.estimate is not None
    ]
    if not rows:
        return ""
    head = ["right action on test prompts", "without dials", *(["with the dials"] * dials), "n"]
    return table(head, rows, f"{EXPLAINED}; 95 % intervals over independent groups")
