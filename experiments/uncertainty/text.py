"""What `refusal uncertainty` says: AUROCs of its measures, other results a line each, reliability as a chart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.charts.blocks import Block, Heading, figure
from experiments.charts.points import reliability
from experiments.charts.specification import BLUE, ORANGE, Chart, Row, fields
from experiments.uncertainty.results import MeasureAuroc, Reliability, UncertaintyResult
from extract.table import Table, print_blocks
from probes.statistics.intervals import Estimate

MEASURES = {
    "negative_log_probability": "-log p",
    "negative_log_probability_per_token": "-log p per token",
    "said_or_sampled": "max(hedging, entropy)",
}
HEADINGS = {"all": "all questions", "known_answer": "known answer only", "committed": "answered only"}
DRAWN = {"committed": ("all questions answered", BLUE), "known_answer": ("those with a known answer", ORANGE)}
NUMBERS = {"series": "questions", "x": "confidence, %"}
NUMBERS |= {"estimate": "right, %", "low": "from, %", "high": "to, %", "n": "n"}
FILES = ["uncertainty.jsonl", "prompts_by_model.jsonl", "stages/uncertainty.json", "figures/reliability.png"]
STARS = "n: wrong or unknowable + right; *: not 0.5, p ≤ 0.05 by permutation, corrected over the measures"


def print_uncertainty(directory: Path, result: UncertaintyResult) -> None:
    """Print the AUROCs, hedging by entropy, the labels, and the files written."""
    if result.applicable:
        written = "Written: " + ", ".join(str(directory / name) for name in FILES)
        print_blocks([_aurocs(result), STARS, *uncertainty_lines(result), written])


def uncertainty_blocks(result: UncertaintyResult | None) -> list[Block]:
    """Return the AUROCs, the other results and the reliability of sampled answers; nothing where none were sampled."""
    if result is None:
        return []
    heading = Heading("Do sampled answers agree?")
    if not result.applicable:
        return [heading, f"Not applicable: {result.reason}."]
    caption = "Share of correct completions by the share of samples that agree; n beside each point; lines: 95 %"
    chart, rows = reliability_diagram(result.reliability), reliability_rows(result.reliability)
    drawn = figure("reliability", chart, caption, rows, NUMBERS)
    return [heading, _aurocs(result), STARS, *uncertainty_lines(result), drawn]


def _aurocs(result: UncertaintyResult) -> Table:
    groups = result.populations
    heads = [f"{head} ({groups[name].wrong_or_unknowable} + {groups[name].right})" for name, head in HEADINGS.items()]
    rows = [
        [
            MEASURES.get(measure, measure.replace("_", " ")),
            *(auroc_cell(groups[name].measures[measure]) for name in HEADINGS),
        ]
        for measure in groups["all"].measures
    ]
    title = f"AUROC of wrong or unknowable against right answers (95 %), {result.settings.samples} samples each"
    return Table(title, ["measure", *heads], rows)


def uncertainty_lines(result: UncertaintyResult) -> list[str]:
    """Return the other results, one a line."""
    lines = []
    if (crossed := result.verbalised_and_statistical) is not None:
        shown = [
            f"{'hedged' if cell.hedged else 'flat'} and {'high' if cell.high_entropy else 'low'} entropy: "
            f"n = {cell.right.n}, right {cell.right:.0%}"
            for cell in crossed.cells
            if cell.right.n
        ]
        lines.append(
            f"Hedging by entropy (high: above {crossed.threshold:.2f} nats): {'; '.join(shown)}."
            if shown
            else f"Hedging by entropy: not measured, {crossed.reason}."
        )
    if "committed" in result.reliability and (gap := result.reliability["committed"].gap).estimate is not None:
        lines.append(f"Mean confidence minus share right, among answered questions: {gap:+.0%} (n = {gap.n}).")
    if (known := result.knowledge) is not None:
        left = "; ".join(f"{n} because {why}" for why, n in known.left_out.items())
        lines.append(
            f"Labels by what the model knows: {known.labelled:.0%} of {known.labelled.n} questions get one; "
            f"{known.agreement_with_file:.0%} of these agree with the file" + (f"; left out: {left}." if left else ".")
        )
        alone = f"{known.by_samples_alone:.0%} would agree with the file."
        lines.append(f"Without known answers, from the samples alone, {alone}")
    return lines + [f"Note: {remark}." for remark in result.remarks]


def auroc_cell(measured: MeasureAuroc) -> str:
    """Return an AUROC with its interval and a star where it is not 1/2."""
    if measured.auroc is None or measured.auroc_ci is None:
        return "too few" if measured.reason.startswith("too few") else "none"
    star = "*" if measured.p_adjusted is not None and measured.p_adjusted <= 0.05 else ""
    return f"{Estimate(measured.auroc, *measured.auroc_ci):.2f}{star}"


def reliability_diagram(by_population: Mapping[str, Reliability]) -> Chart:
    """Draw the share right in each bin of confidence, with 95 % intervals over groups and n."""
    rows = reliability_rows(by_population)
    colours = {str(row["series"]): str(row["colour"]) for row in rows}
    x_title = "confidence: share of samples with the completion's meaning"
    return reliability(rows, colours, x_title=x_title, y_title="share of completions that are right")


def reliability_rows(by_population: Mapping[str, Reliability]) -> list[Row]:
    """Return the points of the diagram, one a bin that has completions."""
    rows: list[Row] = []
    for name, (meaning, colour) in DRAWN.items():
        bins = by_population[name].bins
        series = f"{meaning} (n = {sum(each.right.n or 0 for each in bins)})"
        rows += [{"series": series, "colour": colour, "x": each.confidence, **fields(each.right)} for each in bins]
    return rows
