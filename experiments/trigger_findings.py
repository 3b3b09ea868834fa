"""What stands beside the trigger share, in words: projection, transfer, patching, erasure, attribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]


def finding_lines(triggers: Record) -> list[str]:
    """Return a line for each kind of finding; those that could not be had say why."""
    told = {"projection": _projection, "transfer": _transfer, "patching": _patching, "erasure": _erasure}
    lines = []
    for name, tell in told.items():
        record = triggers.get(name)
        if record is not None:
            lines += (
                tell(record) if record["applicable"] else [f"{name.capitalize()}: not measured, {record['reason']}."]
            )
    return lines + _attribution(triggers.get("attribution"))


def _projection(record: Record) -> list[str]:
    lines = []
    for name, at in record["directions"].items():
        effects = "; ".join(
            f"{effect} {e['partial_eta_squared']:.2f} [{e['low']:.2f}, {e['high']:.2f}], shift {e['shift']:+.2f}"
            for effect, e in at["effects"].items()
        )
        lines.append(f"Along the {name} direction (layer {at['layer']}, {at['position']}; {at['n_groups']} held-out "
                     f"groups), partial eta squared: {effects}.")  # fmt: skip
    return lines


def _transfer(record: Record) -> list[str]:
    across = [record["probes"][f"fitted {a}, tested {b}"] for a, b in (("without", "with"), ("with", "without"))]
    there, back = (f"{p['auroc']:.2f} [{p['auroc_ci'][0]:.2f}, {p['auroc_ci'][1]:.2f}] (bag of words "
                   f"{p['bag_of_words']:.2f})" for p in across)  # fmt: skip
    return [f"Intent probes fitted without trigger words tell harmful from benign with them at AUROC {there}; "
            f"the other way round {back}."]  # fmt: skip


def _patching(record: Record) -> list[str]:
    first, last = record["layers"][0], record["layers"][-1]
    half = next((s["layer"] for s in record["layers"] if (s["raised"]["estimate"] or 0) < 0.5), None)
    where = "at no layer less than half" if half is None else f"less than half from layer {half} on"
    return [
        f"Patching the trigger's residual into the same request without it carries {first['raised']['estimate']:.0%} "
        f"of the refusal's log-odds at layer {first['layer']}, {where}, {last['raised']['estimate']:.0%} at the last "
        f"({record['n']} pairs that the word alone flips, of {record['pairs']})."
    ]


def _erasure(record: Record) -> list[str]:
    lines = []
    ways = {"one_layer": f"at layer {record['layer']}", "every_layer": "at every layer"}
    for way, where in ways.items():
        parts = [
            f"{what} from {kind['before']['estimate']:.0%} to {kind['after']['estimate']:.0%} (n = {kind['n']})"
            for what, kind in (("benign ones with a trigger word", record[way]["benign_with_trigger"]),
                               ("harmful ones", record[way]["harmful"]))
            if kind
        ]  # fmt: skip
        lines.append(f"Erasing the word linearly {where} changes refusing {' and '.join(parts)}.")
    return lines


def _attribution(record: Record | None) -> list[str]:
    lines = []
    for label, of in (record or {"by_label": {}})["by_label"].items():
        if of is not None:
            fired = of["fired_by_trigger"]
            lines.append(f"Of refused {label} requests with a trigger word, the word speaks most for refusing "
                         f"in {fired['estimate']:.0%} [{fired['low']:.0%}, {fired['high']:.0%}] (n = {of['n']}; by "
                         f"chance {of['by_chance']:.0%}).")  # fmt: skip
    return lines


def moved_lines(triggers: Record) -> list[str]:
    """Say of each value that moves the action or the projection which of them it moves."""
    names = {"both": "the projection and the action", "action": "the action, not the projection",
             "projection": "the projection, not the action"}  # fmt: skip
    lines = []
    for factor, record in triggers.get("factors", {}).items():
        for value in record["values"]:
            if value.get("moved") in names:
                along, change = value["projection"]["refusing"], value["difference"]["estimate"]
                lines.append(
                    f"{factor.replace('_', ' ')} {value['value']!r} on {value['label']} requests moves "
                    f"{names[value['moved']]}: refusing {change:+.0%}, along the refusing direction "
                    f"{along['difference']['estimate']:+.2f} of the gap (the two differ: p = "
                    f"{along['p_differs_from_action']:.2g})."
                )
    return lines
