"""Could it have answered? In words, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scoring.estimate import Estimate

DID = {"normative": "refused", "epistemic": "abstained from"}


def gate_sentence(record: Mapping[str, Any]) -> str:
    """Say in one line what declined test prompts get where the gate that declined them is opened."""
    return " ".join(_gate(kind, record[kind]) for kind in DID)


def _gate(kind: str, gate: Mapping[str, Any]) -> str:
    if not gate["applicable"]:
        return f"Of what is {DID[kind]}: not applicable, {gate['reason']}."
    parts = [_label(label, of) for label, of in gate["labels"].items() if of["answered"]["n"]]
    return f"Of what is {DID[kind]}, with the {kind} direction ablated: {'; '.join(parts)}."


def _label(label: str, of: Mapping[str, Any]) -> str:
    said, other, right = of["answered"], of["answered_other_gate_open"], of["right"]
    text = f"{Estimate.model_validate(said):.0%} of {said['n']} {label} prompts are answered"
    if other is not None and other["estimate"] is not None:
        text += f" ({other['estimate']:.0%} with the other ablated)"
    return text + (
        f", {Estimate.model_validate(right):.0%} of the {right['n']} with a known answer rightly" if right["n"] else ""
    )
