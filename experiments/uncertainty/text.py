"""Text of the result of `refusal uncertainty`, for the terminal and the report."""

from __future__ import annotations

from pathlib import Path

from experiments.uncertainty.results import (
    HedgingByEntropy,
    KnowledgeLabels,
    MeasureAuroc,
    StratumAccuracy,
    UncertaintyResult,
)
from probes.statistics.intervals import Estimate

SHOWN = {
    "negative_log_probability": "-log p",
    "negative_log_probability_per_token": "-log p per token",
    "said_or_sampled": "max(hedging, entropy)",
}
HEADINGS = {"all": "all questions", "known_answer": "known answer only", "committed": "answered only"}


def print_uncertainty(directory: Path, result: UncertaintyResult) -> None:
    """Print the AUROCs, hedging by entropy, the labels, and the files written."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not result.applicable:
        return
    console = Console(highlight=False)
    k = result.settings.samples
    table = Table(
        title=f"AUROC of wrong or unknowable against right answers (95 %), {k} samples each",
        box=SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("measure", overflow="fold")
    for name, heading in HEADINGS.items():
        of = result.populations[name]
        table.add_column(f"{heading}\n{of.wrong_or_unknowable} + {of.right}", overflow="fold")
    for measure in result.populations["all"].measures:
        cells = (auroc_cell(result.populations[name].measures[measure]) for name in HEADINGS)
        table.add_row(measure_name(measure), *cells)
    console.print(table)
    console.print("n: wrong or unknowable + right; *: not 0.5, p ≤ 0.05 by permutation, corrected over the measures")
    for line in uncertainty_lines(result):
        console.print(escape(line), soft_wrap=not console.is_terminal)
    written = ("uncertainty.jsonl", "prompts_by_model.jsonl", "stages/uncertainty.json", "figures/reliability.png")
    console.print("Written: " + ", ".join(str(directory / name) for name in written), soft_wrap=not console.is_terminal)


def uncertainty_lines(result: UncertaintyResult) -> list[str]:
    """Return the other results, one a line."""
    found = []
    if result.verbalised_and_statistical is not None:
        found.append(_hedging_line(result.verbalised_and_statistical))
    if "committed" in result.reliability and (gap := result.reliability["committed"].gap).estimate is not None:
        found.append(f"Mean confidence minus share right, among answered questions: {gap:+.0%} (n = {gap.n}).")
    if result.knowledge is not None:
        found += _knowledge_lines(result.knowledge)
    return found + [f"Note: {remark}." for remark in result.remarks]


def _hedging_line(crossed: HedgingByEntropy) -> str:
    shown = [_cell(cell) for cell in crossed.cells if cell.right.n]
    if not shown:
        return f"Hedging by entropy: not measured, {crossed.reason}."
    return f"Hedging by entropy (high: above {crossed.threshold:.2f} nats): {'; '.join(shown)}."


def _knowledge_lines(known: KnowledgeLabels) -> list[str]:
    left = "; ".join(f"{n} because {why}" for why, n in known.left_out.items())
    return [
        f"Labels by what the model knows: {known.labelled:.0%} of {known.labelled.n} questions get one; "
        f"{known.agreement_with_file:.0%} of these agree with the file" + (f"; left out: {left}" if left else "") + ".",
        f"Without known answers, from the samples alone, {known.by_samples_alone:.0%} would agree with the file.",
    ]


def measure_name(measure: str) -> str:
    """Return a measure's short name."""
    return SHOWN.get(measure, measure.replace("_", " "))


def auroc_cell(found: MeasureAuroc) -> str:
    """Return an AUROC with its interval and a star where it is not 1/2."""
    if found.auroc is None or found.auroc_ci is None:
        return "too few" if found.reason.startswith("too few") else "none"
    star = "*" if found.p_adjusted is not None and found.p_adjusted <= 0.05 else ""
    return f"{Estimate(found.auroc, *found.auroc_ci):.2f}{star}"


def _cell(cell: StratumAccuracy) -> str:
    name = f"{'hedged' if cell.hedged else 'flat'} and {'high' if cell.high_entropy else 'low'} entropy"
    return f"{name}: n = {cell.right.n}, right {cell.right:.0%}"
