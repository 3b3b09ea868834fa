"""Text of the thresholds by category, for the terminal and the report."""

from __future__ import annotations

from experiments.dials.results import ByCategory, CategoryDials
from experiments.dials.text import RISK_NAMES
from experiments.run.behaviour import Kind
from scoring.rates import RATES


def category_lines(result: ByCategory) -> list[str]:
    """Return what categories are recognised by, which of them have thresholds of their own, and why others have not."""
    if result.reason:
        return [f"No thresholds by category: {result.reason}."]
    own = [name for name, one in result.categories.items() if one.thresholds]
    lines = [_recognised(result)]
    if own:
        lines.append(
            f"Categories with their own thresholds, each certified on prompts recognised as that category: "
            f"{', '.join(own)}. The certificates above are for one threshold for all prompts; nothing is certified for "
            "the mixture."
        )
        lines += _changed(result)
    else:
        lines.append("No category has its own thresholds.")
    kept: dict[str, list[str]] = {}
    for name, one in result.categories.items():
        if not one.thresholds:
            kept.setdefault("; ".join(one.why), []).append(name)
    return lines + [f"Without their own: {', '.join(names)} ({why})." for why, names in kept.items()]


def _recognised(result: ByCategory) -> str:
    at = result.read_at
    where = "" if at is None else f" at layer {at.layer}, {at.position}"
    share = "" if result.recognised is None else f"{result.recognised:.0%} of the test prompts are recognised"
    right = "" if result.right is None else f", {result.right:.0%} of these rightly"
    return f"Categories are recognised{where} from a probability of {result.confident:g} on: {share}{right}."


def _changed(result: ByCategory) -> list[str]:
    told = [
        f"{RISK_NAMES[name]} {rate.before:.1%} to {rate.after:.1%} ({rate.change:+.1%})"
        for name, rate in result.changes.items()
        if rate.before != rate.after
    ]
    return [f"Changes on test prompts: {'; '.join(told)}."] if told else ["No rate on test prompts changes."]


def category_rows(result: ByCategory) -> tuple[list[str], list[list[str]]]:
    """Return the table of categories: thresholds, and rates on test with one threshold for all and with their own."""
    found = list(result.categories.values())
    kinds = list(dict.fromkeys(kind for one in found for kind in one.thresholds or ()))
    shown = [rate for rate in RATES if any(one.test.of(rate).n for one in found)]
    head = ["category", *(f"{kind} threshold" for kind in kinds), *(RISK_NAMES[rate] for rate in shown)]
    return head, [
        [name, *(_threshold(one, kind) for kind in kinds), *(_rates(one, rate) for rate in shown)]
        for name, one in result.categories.items()
    ]


def _threshold(one: CategoryDials, kind: Kind) -> str:
    own = one.thresholds or {}
    return f"{own[kind]:.3f}" if kind in own else "of all"


def _rates(one: CategoryDials, rate: str) -> str:
    before, after = one.test_pooled.of(rate), one.test.of(rate)
    if not after.n:
        return "-"
    shown = f"{after:.1%}, n {after.n}"
    return shown if before.estimate == after.estimate else f"{before:.1%} to {shown}"
