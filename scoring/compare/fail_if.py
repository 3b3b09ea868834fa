"""Conditions under which a comparison fails: `--fail-if 'over_refusal > 5%'`.

A condition names a rate of the later run (or `right_action`), its change against the first (`change.NAME`), a limit of
the 95 % interval of either (`NAME.high`, `change.NAME.low`), or a number of completions (`unjudged`, `only_in_first`).
A condition that cannot be evaluated, since nothing was judged, fails too.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from extract.errors import UserError
from scoring.compare.comparison import ComparedRun, Comparison, FailedCondition
from scoring.rates import RATES

COUNTS = ("unjudged", "only_in_first", "only_in_second")  # numbers of completions: of the later run, or in one run only
NAMES = (*RATES, "right_action", *COUNTS)
_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_FORM = re.compile(r"\s*(change\.)?(\w+)(\.low|\.high)?\s*(>=|<=|>|<)\s*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)\s*(%?)\s*")


@dataclass(frozen=True)
class Condition:
    """One condition: its text, the value it reads, and the bound it compares the value with."""

    text: str
    change: bool
    name: str
    limit: str  # "", "low" or "high"
    operator: str
    bound: float

    def met(self, run: ComparedRun) -> bool | None:  # None where the value is unknown
        value = self.value(run)
        return None if value is None else bool(_OPERATORS[self.operator](value, self.bound))

    def value(self, run: ComparedRun) -> float | None:
        """Return the compared value; None where it is unknown. Rates are those of the whole later run."""
        if self.name in COUNTS:
            return float(run.rates.unjudged if self.name == "unjudged" else getattr(run.matched, self.name))
        if self.name == "right_action":
            estimate = run.right_action_change if self.change else run.right_action
        else:
            estimate = run.changes[self.name].difference if self.change else run.rates.of(self.name)
        return float(getattr(estimate, self.limit or "estimate")) if estimate.known else None


def failures(comparison: Comparison, conditions: Sequence[Condition]) -> tuple[FailedCondition, ...]:
    """Return the conditions that a later run meets, and those that cannot be evaluated."""
    return tuple(
        FailedCondition(run=run.run, condition=condition.text, known=met is not None, value=condition.value(run))
        for run in comparison.comparisons
        for condition in conditions
        if (met := condition.met(run)) is not False
    )


def parse_all(text: str) -> list[Condition]:
    """Read conditions joined by commas, semicolons or "or": the comparison fails if one holds."""
    return [parse(part) for part in re.split(r"[,;]|\bor\b", text)]


def parse(text: str) -> Condition:
    """Read a condition."""
    match = _FORM.fullmatch(text)
    if match is None:
        example = "such as 'over_refusal > 5%' or 'change.overconfidence.low > 0' (with >, >=, < or <=, and a decimal"
        raise UserError(f"--fail-if takes a condition {example} point in numbers), got {text.strip()!r}")
    change, name, limit, sign, bound, per_cent = match.groups()
    value, fault = float(bound) / (100 if per_cent else 1), ""
    if name in COUNTS and (change or limit or per_cent):
        fault = f"{name} is a number of completions: it has no change, interval or per cent; write '{name} > 0'"
    elif name not in NAMES:
        also = "rates and right_action also as change.NAME, and with .low or .high for the limits of their intervals"
        fault = f"unknown name {name!r}; known are {', '.join(NAMES)}; {also}"
    elif name == "right_action" and (per_cent or not -2 <= value <= 2):
        score = "the right-action score is at most 1, and its change lies between -2 and 2"
        fault = f"{text.strip()!r}: {score}; write such a number"
    elif name in RATES and not -1 <= value <= 1:
        remedy = "a per cent from -100 to 100" if per_cent else f"{bound}% or a number from -1 to 1"
        fault = f"{text.strip()!r} compares a rate with {value:g}, which no rate can reach; write {remedy}"
    if fault:
        raise UserError(f"--fail-if: {fault}")
    return Condition(text.strip(), bool(change), name, (limit or "").lstrip("."), sign, value)
