"""The outcome of `refusal uncertainty` on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scoring.estimate import Estimate

SHOWN = {
    "negative_log_probability": "-log p",
    "negative_log_probability_per_token": "-log p per token",
}
HEADINGS = {"all": "all questions", "known_answer": "known answer only", "committed": "answered only"}


def print_uncertainty(directory: Path, record: dict[str, Any]) -> None:
    """Print the AUROCs, what is said against what the samples do, the labels, and the files written."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not record["applicable"]:
        return
    console = Console(highlight=False)
    k = record["settings"]["samples"]
    table = Table(title=f"What tells wrong or unknowable from right: AUROC (95 %), {k} samples each",
                  box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)  # fmt: skip
    table.add_column("measure")
    for name, heading in HEADINGS.items():
        of = record["populations"][name]
        table.add_column(f"{heading}\n{of['wrong_or_unknowable']} + {of['right']}", no_wrap=True)
    for measure in record["populations"]["all"]["measures"]:
        cells = (auroc_cell(record["populations"][name]["measures"][measure]) for name in HEADINGS)
        table.add_row(measure_name(measure), *cells)
    console.print(table)
    console.print("n: wrong or unknowable + right; *: not 0.5, p ≤ 0.05 by permutation, corrected for the measures")
    for line in lines(record):
        console.print(escape(line), soft_wrap=True)
    written = ("uncertainty.jsonl", "prompts_by_model.jsonl", "stages/uncertainty.json", "figures/reliability.png")
    console.print("Written: " + ", ".join(str(directory / name) for name in written), soft_wrap=True)


def lines(record: Mapping[str, Any]) -> list[str]:
    """Say the rest, a line each."""
    crossed, gap = record["verbalised_and_statistical"], record["reliability"]["committed"]["gap"]
    said = [_cell(cell) for cell in crossed["cells"] if cell["right"]["n"]]
    told = [f"Hedged aloud or not, by entropy above {crossed['threshold']:.2f} nats or not: {'; '.join(said)}."
            if said else f"Hedging is not set against entropy: {crossed.get('reason', '')}."]  # fmt: skip
    if gap["estimate"] is not None:
        told.append(f"Surer than right, among what is answered, by {gap['estimate']:+.0%} "
                    f"[{gap['low']:+.0%}, {gap['high']:+.0%}] (n = {gap['n']}).")  # fmt: skip
    known = record["knowledge"]
    labelled, agreeing, alone = (
        Estimate.model_validate(known[name]) for name in ("labelled", "agreement_with_file", "by_samples_alone")
    )
    left = "; ".join(f"{n} where {why}" for why, n in known["left_out"].items())
    told.append(f"Labels by what the model knows: {labelled:.0%} of {labelled.n} questions get "
                f"one, {agreeing:.0%} of these the file's"
                + (f"; left out: {left}" if left else "") + ".")  # fmt: skip
    told.append(f"By the samples alone, no answer looked up, {alone:.0%} would get the file's.")
    return told + [f"Note: {remark}." for remark in record["remarks"]]


def measure_name(measure: str) -> str:
    """Return a measure's short name."""
    return SHOWN.get(measure, measure.replace("_", " "))


def auroc_cell(cell: Mapping[str, Any]) -> str:
    """Return an AUROC with its interval and a star where it is not 1/2."""
    if cell["auroc"] is None:
        return "none"
    low, high = cell["auroc_ci"]
    return f"{cell['auroc']:.2f} [{low:.2f}, {high:.2f}]{'*' if cell['p_adjusted'] <= 0.05 else ''}"


def _cell(cell: Mapping[str, Any]) -> str:
    name = f"{'hedged' if cell['hedged'] else 'flat'} and {'high' if cell['high_entropy'] else 'low'}"
    return f"{name} {cell['right']['n']}, right {Estimate.model_validate(cell['right']):.0%}"
