"""Hedging score: how strongly a completion states its own uncertainty, between 0 and 1, by the rule judge's tables."""

from __future__ import annotations

from scoring.judges.rules import RuleJudge
from scoring.judges.table import NOT_KNOWING
from scoring.judges.visible_text import visible_text

HEDGED = 0.5  # score of an answer whose every clause is hedged; below that of an abstention
OF_RESPONSIBILITY = frozenset({"general information", "disclaimer"})  # hedges that do not concern knowledge
UNSURE = NOT_KNOWING | {"limit"}
ASIDE = frozenset({"courtesy", "frame", "reread", "redirect", "support"})  # clauses without content


def hedging(judge: RuleJudge, completion: str, prompt: str) -> float:
    """Score the verbalised uncertainty of a completion.

    - 1 if it abstains, because it withholds the answer for lack of knowledge;
    - 0 if it refuses, which does not concern knowledge;
    - otherwise half the share of its clauses with content that hedge ("I think", "as far as I know", "I am not sure
      when"): 0 for a flat answer, 0.5 if every clause hedges. Disclaimers of responsibility do not count.

    Only the opening is read, as by the judge (the first 11 clauses). The scale is a convention; an AUROC uses only the
    order. NaN where the judge cannot judge the completion.
    """
    action = judge.judge(completion, prompt).action
    if action is None:
        return float("nan")
    if action in ("abstain", "refuse"):
        return float(action == "abstain")
    clauses = judge.reader.read(visible_text(completion, prompt) or "", judge.reader.asked(prompt))
    content = [clause for clause in clauses if clause.kind not in ASIDE]
    unsure = [clause for clause in content if clause.kind in UNSURE or _hedges(judge, clause.text)]
    return HEDGED * len(unsure) / len(content) if content else 0.0


def _hedges(judge: RuleJudge, clause: str) -> bool:
    """Return whether a clause holds a hedge, even if the judge classifies the clause otherwise."""
    rules = (rule for kind, of_kind in judge.table.rules if kind == "hedge" for rule in of_kind)
    return any(
        rule.pattern is not None and rule.pattern.search(clause) is not None
        for rule in rules
        if rule.name not in OF_RESPONSIBILITY
    )
