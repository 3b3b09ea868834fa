"""What the context of requests says: a line a factor, and a table of the compared values."""

from __future__ import annotations

from experiments.charts.blocks import Block
from experiments.factors.results import ContextResults
from experiments.run.wording import p_text
from extract.table import Table

FACTORS = {"asker": "Who asks", "system": "The system line", "earlier_turns": "The conversation before the last turn"}
MOVES = {True: "moves refusing", False: "does not move refusing", None: "is not known to move refusing"}
SUFFICES = {True: "suffices", False: "is insufficient", None: "was not judged"}


def factor_lines(results: ContextResults, *, notable: bool = False) -> list[str]:
    """Return a line a factor, and one on the last turn alone; if `notable`, only those that add to the verdict."""
    lines = [
        f"{FACTORS[name]} {MOVES[factor.moves]}: {factor.reason}."
        if factor.applicable
        else f"{factor.reason.capitalize()}."
        for name, factor in results.factors.items()
        if factor.moves or not notable
    ]
    alone = results.last_turn_alone
    if alone and alone.applicable and (alone.sufficient is False or not notable):
        lines.append(f"Reading the last turn alone {SUFFICES[alone.sufficient]}: {alone.reason}.")
    return lines


def moved_lines(results: ContextResults) -> list[str]:
    """Return a line for each value that moves the action, the projection or both."""
    names = {
        "both": "the projection and the action",
        "action": "the action, and is not shown to move the projection",
        "projection": "the projection, and is not shown to move the action",
    }
    lines = []
    for name, factor in results.factors.items():
        for value in factor.values:
            if value.moved in names:
                along, change = value.projection["refusing"], value.difference.estimate
                lines.append(
                    f"{name.replace('_', ' ')} {value.value!r} on {value.label} requests moves "
                    f"{names[value.moved]}: refusing {change:+.0%}, along the refusing direction "
                    f"{along.difference.estimate:+.2f} of the gap (test that the two differ: adjusted p = "
                    f"{p_text(along.p_differs_from_action_adjusted, '.2g')})."
                )
    return lines


def context_blocks(results: ContextResults) -> list[Block]:
    """Return what the context of requests does to refusing; nothing where no request has any.

    The table has each compared value of each factor by label, then the effect of removing the factor.
    """
    alone = results.last_turn_alone
    if not (any(factor.applicable for factor in results.factors.values()) or (alone and alone.applicable)):
        return []
    rows = []
    for name, factor in results.factors.items():
        shown = name.replace("_", " ")
        for effect in factor.values:
            tested = f"p = {p_text(effect.p_adjusted, '.2g')}" + (" *" if effect.moves else "")
            rates = f"{effect.with_value:.1%}", f"{effect.without:.1%}"
            rows.append([f"{shown}: {effect.value}", effect.label, *rates, tested])
        for label, change in (factor.removed.by_label() if factor.removed else {}).items():
            tested = f"{change.changed.estimate:.0%} of decisions changed"
            rates = f"{change.before:.1%}", f"{change.after:.1%}"
            rows.append([f"{shown} removed, the same {change.n} requests", label, *rates, tested])
    head = ["context", "label", "refused with it", "refused without", "evidence (* changes refusing)"]
    return [*factor_lines(results), *moved_lines(results), *([Table("", head, rows)] if rows else [])]
