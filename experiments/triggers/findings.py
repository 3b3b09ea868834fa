"""What stands beside the trigger share, in words: projection, transfer, patching, erasure, attribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]


def finding_lines(triggers: Record) -> list[str]:
    """Return a line for each kind of finding; those that could not be had say why."""
    told = {
        "projection": ("Projection", _projection), "transfer": ("Transfer", _transfer),
        "patching": ("Patching", _patching), "erasure": ("Erasure", _erasure),
        "attribution": ("Which word fired", _attribution),
    }  # fmt: skip
    lines = []
    for name, (heading, tell) in told.items():
        if (record := triggers.get(name)) is not None:
            lines += tell(record) if record["applicable"] else [f"{heading}: not measured, {record['reason']}."]
    return lines


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
    shares = {at["layer"]: at["raised"] for at in record["layers"]}
    known = {layer: share for layer, share in shares.items() if share["low"] is not None}
    n = f"{record['n']} of {record['flipped']} pairs that the word alone flips, of {record['pairs']} that differ in it"
    if not known:
        return [f"Patching: the share of the refusal's log-odds is not known at any layer ({n})."]
    below = [layer for layer, share in known.items() if share["high"] < 0.5]
    steady = next((at for at in below if all(k in below for k in known if k >= at)), None)
    where = "at no layer surely less than half" if steady is None else f"surely less than half from layer {steady} on"
    first, last = min(known), max(known)
    return [
        f"Patching: the residual of the trigger's own tokens, put into the same request without the word, carries "
        f"{_share(known[first])} of the refusal's log-odds at layer {first}, {_share(known[last])} at layer {last}, "
        f"{where} ({n}). It begins near 1 wherever spans are of one length."
    ]


def _share(share: Record) -> str:
    return f"{share['estimate']:.0%} [{share['low']:.0%}, {share['high']:.0%}]"


def _erasure(record: Record) -> list[str]:
    lines = []
    if auroc := record["auroc"]:
        before, after = (f"{auroc[when]['estimate']:.2f} [{auroc[when]['low']:.2f}, {auroc[when]['high']:.2f}]"
                         for when in ("before", "after"))  # fmt: skip
        lines.append(f"Erasing the word linearly at layer {record['layer']}: on unseen requests it can "
                     f"be read there at AUROC {before} before and {after} after.")  # fmt: skip
    ways = {"one_layer": f"at layer {record['layer']}", "every_layer": "at every stored layer"}
    for way, where in ways.items():
        parts = [
            f"{what} are refused at {kind['before']['estimate']:.0%}, then {kind['after']['estimate']:.0%} (decisions "
            f"changed: {_share(kind['changed'])}, n = {kind['n']})"
            for what, kind in (("benign requests with a trigger word", record[way]["benign_with_trigger"]),
                               ("harmful ones", record[way]["harmful"]))
            if kind
        ]  # fmt: skip
        if parts:
            lines.append(f"With the word erased {where}, {'; '.join(parts)}.")
    return lines


def _attribution(record: Record) -> list[str]:
    lines = []
    for label, of in record["by_label"].items():
        if of is not None:
            lines.append(f"Which word fired: in {_share(of['fired_by_trigger'])} of refused {label} requests with a "
                         f"trigger word it adds most to the log-odds of refusing, and 1 nat or more (n = {of['n']}; by "
                         f"chance {of['by_chance']:.0%}).")  # fmt: skip
    return lines


def moved_lines(triggers: Record) -> list[str]:
    """Say of each value that moves the action or the projection which of them it moves."""
    names = {"both": "the projection and the action", "action": "the action, and is not shown to move the projection",
             "projection": "the projection, and is not shown to move the action"}  # fmt: skip
    lines = []
    for factor, record in triggers.get("factors", {}).items():
        for value in record["values"]:
            if value.get("moved") in names:
                along, change = value["projection"]["refusing"], value["difference"]["estimate"]
                lines.append(
                    f"{factor.replace('_', ' ')} {value['value']!r} on {value['label']} requests moves "
                    f"{names[value['moved']]}: refusing {change:+.0%}, along the refusing direction "
                    f"{along['difference']['estimate']:+.2f} of the gap (that the two differ: adjusted p = "
                    f"{along['p_differs_from_action_adjusted']:.2g})."
                )
    return lines
