"""Counterfactual answers with a gate opened: on the organism, whose gates are known, and the printed sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.dissociation.results import OpenedGates
from experiments.dissociation.text import gate_sentence


def share(estimate: float | None, n: int) -> dict[str, Any]:
    return {"estimate": estimate, "low": 0.0, "high": 1.0, "n": n}


def gate(answered: dict[str, Any], other: dict[str, Any] | None, right: dict[str, Any]) -> dict[str, Any]:
    nothing = {"answered": share(None, 0), "answered_other_gate_open": None, "right": share(None, 0)}
    here = {"answered": answered, "answered_other_gate_open": other, "right": right}
    return {"applicable": True, "reason": "", "labels": {"benign": here, "uncertain": nothing}}


def test_the_sentence_gives_shares_or_the_reason_why_there_are_none() -> None:
    record = {"normative": gate(share(0.75, 8), share(0.25, 8), share(0.5, 2)),
              "epistemic": {"applicable": False, "reason": "no epistemic write direction: too few"}}  # fmt: skip
    assert gate_sentence(OpenedGates.model_validate(record)) == (
        "Refused prompts, with the normative direction ablated: 75% [0%, 100%] of 8 benign prompts are answered "
        "(25% with the other ablated), 50% [0%, 100%] of the 2 with a known answer correctly. "
        "Prompts abstained from: not applicable, no epistemic write direction: too few."
    )
    alone = record | {"normative": gate(share(0.5, 4), None, share(None, 0))}
    assert "of 4 benign prompts are answered. Prompts" in gate_sentence(OpenedGates.model_validate(alone))


@pytest.mark.slow
def test_an_open_gate_lets_declined_prompts_through_and_the_other_gate_does_not(quickstart: Path) -> None:
    results = json.loads((quickstart / "results.json").read_text())
    found = results["could_have_answered"]
    assert found == json.loads((quickstart / "stages/gate_open.json").read_text())
    for kind, label in (("normative", "benign"), ("epistemic", "uncertain")):
        here = found[kind]["labels"][label]
        assert here["answered"]["n"] >= 20
        assert here["answered"]["low"] > 0.8
        assert here["answered_other_gate_open"]["high"] < 0.2  # the control
        assert here["answered"]["change"]["low"] > 0.6
        assert here["right"]["n"] == 0  # the organism's requests have no right answer, nor have unknown people
    assert "Could it have answered?" in (quickstart / "stdout.txt").read_text()
    assert "uncertainty" not in results  # only where the configuration asks for it
