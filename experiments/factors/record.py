"""What was found of each factor, as it stands in stages/triggers.json: does it move refusing, and how is that known?"""

from __future__ import annotations

from typing import Any

from experiments.factors.observed import FACTORS, MIN_GROUPS, Effect, Observed
from experiments.factors.removal import REMOVALS, Removal
from probes.statistics.intervals import Interval

ALPHA = 0.05
ABSENT = {
    "asker": "no request names who asks",
    "system": "no request has a system line",
    "earlier_turns": "no request has earlier turns",
}
MOST_LISTED = 20  # values too rare to test


def factor_records(observed: Observed, removals: dict[str, Removal | None]) -> dict[str, Any]:
    """Return one record a factor. Removing it, where that can be done and tells, outweighs observing it."""
    records = {}
    for name in FACTORS:
        effects = [effect for effect in observed.effects if effect.factor == name]
        removal = removals.get(name)
        seen = any(e.p_adjusted <= ALPHA for e in effects) if effects else None
        told = removal.moves if removal is not None else None
        untested = observed.untested[name]
        records[name] = {
            "applicable": bool(effects or untested),
            "moves": seen if told is None else told,
            "reason": _reason(name, effects, untested, removal),
            "removable": name in REMOVALS,
            "values": [_effect(effect) for effect in effects],
            "not_tested": dict(list(untested.items())[:MOST_LISTED]),
            "n_not_tested": len(untested),
            "removed": None if removal is None else _removed(removal),
        }
    return records


def _reason(name: str, effects: list[Effect], untested: dict[str, int], removal: Removal | None) -> str:
    if not effects and not untested:
        return ABSENT[name]
    parts = [_seen(effects, untested)]
    if removal is not None:
        parts.append(_told(removal))
    if name not in REMOVALS:
        parts.append("observed only: who asks is part of the request's words and cannot be taken out in general")
    return "; ".join(parts)


def _seen(effects: list[Effect], untested: dict[str, int]) -> str:
    if not effects:
        rare = max(untested.values()) < MIN_GROUPS
        why = f"stands in {MIN_GROUPS} independent groups" if rare else "has like requests without it beside it"
        return f"not compared with requests without it: no value {why}"
    found = sorted((e for e in effects if e.p_adjusted <= ALPHA), key=lambda e: (e.p_adjusted, -_size(e)))
    if not found:
        return "no value goes with more or less refusing than chance brings about"
    first = found[0]
    rest = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{first.label} requests with {first.value!r} are refused at {first.with_value.estimate:.0%}, like ones "
        f"without at {first.without.estimate:.0%} (adjusted p = {first.p_adjusted:.2g}{rest})"
    )


def _told(removal: Removal) -> str:
    if not removal.by_label:
        return "what is decided without it could not be judged"
    label, most = max(removal.by_label.items(), key=lambda item: item[1].changed.low)
    changed = f"{most.changed.estimate:.0%} of decisions on {label} requests"
    if removal.moves is None:
        return f"too few requests to say what removing it changes ({changed})"
    return f"removing it changes {changed}" if removal.moves else f"removing it leaves decisions alone ({changed})"


def _size(effect: Effect) -> float:
    return abs(effect.difference.estimate)


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "value": effect.value,
        "label": effect.label,
        "compared_with": effect.compared_with,
        "with": _interval(effect.with_value) | {"n": effect.n[0], "n_groups": effect.n_groups[0]},
        "without": _interval(effect.without) | {"n": effect.n[1], "n_groups": effect.n_groups[1]},
        "difference": _interval(effect.difference),
        "p": effect.p,
        "p_adjusted": effect.p_adjusted,
        "moves": effect.p_adjusted <= ALPHA,
    }


def _removed(removal: Removal) -> dict[str, Any]:
    return {
        "moves": removal.moves,
        **{
            label: {
                "n": change.n,
                "n_groups": change.n_groups,
                "refused_whole": _interval(change.whole),
                "refused_without": _interval(change.removed),
                "changed": _interval(change.changed),
            }
            for label, change in removal.by_label.items()
        },
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
