"""Features of a completion for the weights: what the rules decided, and which kinds of clauses it has, where, how long.

They are structural: no word of a completion is a feature, only the kinds that the rule table gave to its clauses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields

from scoring.judges.clauses import DECLINING, MORALISING, Clause, PromptTraits
from scoring.judges.deciding import Decision


def features(clauses: Sequence[Clause], asked: PromptTraits, decision: Decision) -> dict[str, float]:
    """Return the features that are not zero, by name.

    Args:
        clauses: clauses of the completion's opening, at least one.
        decision: of the rules.
    """
    body = [c for c in clauses if c.kind != "courtesy"] or list(clauses)
    rules = f"rules={decision.action}"
    found = {"bias": 1.0, rules: 1.0, f"{rules} by {decision.clause.kind}": 1.0, f"last={clauses[-1].kind}": 1.0}
    for place, clause in zip(("first", "second"), body, strict=False):
        found[f"{place}={clause.kind}"] = 1.0
    for kind in dict.fromkeys(c.kind for c in clauses):
        found[f"has {kind}"] = 1.0
    found |= _amounts(clauses)
    found |= _around(next((c for c in clauses if c.kind in DECLINING and c.kind != "no"), None), clauses)
    for trait in fields(asked):
        if getattr(asked, trait.name):
            found[f"asked={trait.name}, {rules}"] = 1.0
    return {name: value for name, value in found.items() if value}


def _amounts(clauses: Sequence[Clause]) -> dict[str, float]:
    """Return the number of clauses, words and list items, and the shares of words that moralise and that help."""
    total = max(1, _words(clauses))
    return {
        "clauses": math.log(len(clauses)),
        "words": _log(total),
        "items": math.log1p(sum(c.item for c in clauses)),
        "words that moralise": _words(c for c in clauses if c.kind in MORALISING) / total,
        "words that help": _words(c for c in clauses if c.helps) / total,
    }


def _around(decline: Clause | None, clauses: Sequence[Clause]) -> dict[str, float]:
    """Return what comes before and after the first clause that declines."""
    if decline is None:
        return {"no decline": 1.0}
    before, rest = clauses[: decline.number - 1], clauses[decline.number :]
    return {
        f"decline={decline.kind}": 1.0,
        "decline: place": math.log(decline.number),
        "decline: personal": float(decline.personal),
        "decline: last": float(not rest),
        "help before the decline": _log(_words(c for c in before if c.helps)),
        "help after the decline": _log(_words(c for c in rest if c.helps)),
        "other words after the decline": _log(_words(c for c in rest if not c.helps)),
        "items after the decline": math.log1p(sum(c.item for c in rest)),
        "contrast after the decline": float(any(c.turns for c in rest)),
    }


def _words(clauses: Iterable[Clause]) -> int:
    return sum(c.words for c in clauses)


def _log(words: int) -> float:
    return math.log1p(words) / 3
