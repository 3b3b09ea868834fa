"""How much a completion says aloud that it may be wrong, between 0 and 1, by the rule judge's tables."""

from __future__ import annotations

from scoring.judges.clauses import NOT_KNOWING
from scoring.judges.rules import RuleJudge
from scoring.judges.visible_text import visible_text

HEDGED = 0.5  # of an answer every clause of which is hedged: less than of one withheld
OF_RESPONSIBILITY = frozenset({"general information", "disclaimer"})  # hedges that say nothing of what is known
UNSURE = NOT_KNOWING | {"limit"}
ASIDE = frozenset({"courtesy", "frame", "reread", "redirect", "support"})  # clauses that say nothing of the matter


def hedging(judge: RuleJudge, completion: str, prompt: str) -> float:
    """Score what a completion says of its own reliability.

    - 1 where it abstains: the answer is withheld for want of knowledge;
    - 0 where it refuses: that says nothing of knowledge;
    - else half the share of its clauses with content that hedge ("I think", "as far as I know", "I am not sure when"):
      0 for a flat answer, 0.5 for one hedged throughout. Disclaimers of responsibility do not count.

    Only the opening is read, as by the judge (its first 11 clauses). The scale is a convention; an AUROC takes the
    order alone. NaN where the judge cannot tell what was said.
    """
    action = judge.judge(completion, prompt).action
    if action is None:
        return float("nan")
    if action in ("abstain", "refuse"):
        return float(action == "abstain")
    clauses = judge.reader.read(visible_text(completion, prompt) or "", judge.reader.asked(prompt))
    telling = [clause for clause in clauses if clause.kind not in ASIDE]
    unsure = [clause for clause in telling if clause.kind in UNSURE or _hedges(judge, clause.text)]
    return HEDGED * len(unsure) / len(telling) if telling else 0.0


def _hedges(judge: RuleJudge, clause: str) -> bool:
    """Say whether a clause holds a hedge, even where other words make the judge take it for something else."""
    rules = (rule for kind, of_kind in judge.table.rules if kind == "hedge" for rule in of_kind)
    return any(rule.pattern is not None and rule.pattern.search(clause) is not None
               for rule in rules if rule.name not in OF_RESPONSIBILITY)  # fmt: skip
