"""What simpler readings of the same run say: the angle of the two directions, and point estimates without a null."""

from __future__ import annotations

from typing import Any

from experiments.dissociation.effects import EFFECT_KEYS
from experiments.dissociation.verdict_rules import EffectTable, contrast_name, effect_name, estimated_table, verdict_of
from experiments.run.behaviour import KINDS
from probes.statistics.intervals import Interval

ONE_DIRECTION = 0.5  # |cosine| from which on two directions are often called one


def by_cosine(record: dict[str, Any]) -> str:
    """Return `one` or `two` by the cosine of the two write directions; `-` where there are not two.

    Args:
        record: of stages/dissociate.json.
    """
    dependence = record.get("dependence")
    if dependence is None:
        return "-"
    return "one" if abs(dependence["cosine"]) >= ONE_DIRECTION else "two"


def by_estimates(record: dict[str, Any]) -> str:
    """Return the verdict of the rules on point estimates, as if exact and beyond any null; `-` without them."""
    names = {**{effect_name(key): "effects" for key in EFFECT_KEYS}, **{contrast_name(b): "contrasts" for b in KINDS}}
    points: dict[str, Interval] = {}
    for name, section in names.items():
        found = (record.get(section) or {}).get(name)
        if found is None or found["estimate"] is None:
            return "-"
        points[name] = Interval(*[found["estimate"]] * 3)
    table: EffectTable = estimated_table(points, record["margin"])
    return verdict_of(table)
