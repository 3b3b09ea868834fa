"""The section on uncertainty: answers with the gate opened, and agreement of sampled answers."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from experiments.dissociation.results import OpenedGates
from experiments.dissociation.text import gate_sentence
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import HEADINGS, auroc_cell, measure_name, uncertainty_lines

HtmlTable = Callable[[list[str], list[list[str]]], str]


def uncertainty_section(
    gates: OpenedGates | None, result: UncertaintyResult | None, table: HtmlTable, figure: str
) -> str:
    """Return the sentence on opened gates and, where answers were sampled, AUROCs, findings and the figure.

    Args:
        gates: completions with a gate opened; None for runs made before this was measured.
    """
    opened = f"<h3>Could it have answered?</h3><p>{escape(gate_sentence(gates))}</p>" if gates else ""
    if result is None:
        return opened
    head = "<h3>Do sampled answers agree?</h3>"
    if not result.applicable:
        return f"{opened}{head}<p>Not applicable: {escape(result.reason)}.</p>"
    of = result.populations
    columns = [f"{heading} ({of[name].wrong_or_unknowable} + {of[name].right})" for name, heading in HEADINGS.items()]
    rows = [[measure_name(measure), *(auroc_cell(of[name].measures[measure]) for name in HEADINGS)]
            for measure in of["all"].measures]  # fmt: skip
    text = "".join(f"<p>{escape(line)}</p>" for line in uncertainty_lines(result))
    return opened + head + table(["AUROC: wrong or unknowable against right", *columns], rows) + text + figure
