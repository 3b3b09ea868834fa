"""What the model knows and says it knows: the report's part on uncertainty and on opened gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from experiments.dissociation.results import OpenedGates
from experiments.dissociation.text import gate_sentence
from experiments.uncertainty.text import HEADINGS, auroc_cell, lines, measure_name

HtmlTable = Callable[[list[str], list[list[str]]], str]


def uncertainty_section(results: Mapping[str, Any], table: HtmlTable, figure: str) -> str:
    """Return the sentence on opened gates and, where answers were sampled, the AUROCs, the lines and the figure."""
    gates = results.get("could_have_answered")  # runs made before it was asked have none
    opened = _opened(OpenedGates.model_validate(gates)) if gates else ""
    record = results.get("uncertainty")
    if record is None:
        return opened
    head = "<h3>Does it say the same when asked again?</h3>"
    if not record["applicable"]:
        return f"{opened}{head}<p>Not applicable: {escape(record['reason'])}.</p>"
    of = record["populations"]
    columns = [
        f"{heading} ({of[name]['wrong_or_unknowable']} + {of[name]['right']})" for name, heading in HEADINGS.items()
    ]
    rows = [[measure_name(measure), *(auroc_cell(of[name]["measures"][measure]) for name in HEADINGS)]
            for measure in of["all"]["measures"]]  # fmt: skip
    told = "".join(f"<p>{escape(line)}</p>" for line in lines(record))
    return opened + head + table(["AUROC: wrong or unknowable against right", *columns], rows) + told + figure


def _opened(gates: OpenedGates) -> str:
    return f"<h3>Could it have answered?</h3><p>{escape(gate_sentence(gates))}</p>"
