"""Pages of `refusal score --html` and `refusal compare --html`, and runs side by side in a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from experiments.charts.blocks import Block, Section, figure
from experiments.charts.points import reliability
from experiments.charts.rates import rates_before_after
from experiments.charts.specification import BLUE, Row, fields
from experiments.report.page.document import document, render, shortened
from experiments.report.page.summary import runs_table
from experiments.report.results import RunResults
from extract.table import Cell, Paragraph, Quoted, Table
from scoring.abstaining import ConfidenceRecord
from scoring.compare.comparison import ComparedRun, Comparison, Flip
from scoring.compare.text import changes_table
from scoring.ledger import Entry
from scoring.rates import RATES, JointRates
from scoring.scorecard import Scorecard
from scoring.wording import (
    BY_MEANING,
    FIELD_MEANING,
    RATE_MEANING,
    band_lines,
    corrected_lines,
    known_answer_estimates,
    outcome_estimates,
    right_action_estimates,
)

MOST_ROWS = 500  # of the completions that count for a rate
MOST_CHARACTERS = 600
MOST_FLIPS, MOST_OF_FLIP = 2000, 400  # flipped prompts, and characters of each
COLUMNS = {"rate": "rate", "when": "file", "estimate": "rate, %", "low": "from, %", "high": "to, %", "n": "n"}
ON_RUNS = "Rates without dials on the prompts that both runs have, of every part"
ALL = "% of labelled completions; lines: 95 % intervals"


def scorecard_page(card: Scorecard, rows: Sequence[Entry], name: str) -> str:
    """Return the page of one scored file.

    Args:
        rows: the judged completions, of scored.jsonl.
        name: of the file, for the title.
    """
    sections = [Section("rates", "Rates", f"{card.n:,} completions", list(_rates(card, name)))]
    sections += [
        Section(f"mistakes-{rate}", rate, RATE_MEANING[rate], mistakes)
        for rate in RATES
        if (mistakes := _mistakes(rate, rows))
    ]
    more = list(_breakdowns(card))
    sections += [Section("more", "More", "Actions, scores and groups", more)] if more else []
    return _page(f"Scorecard: {name}", sections)


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison: the rates of each file, the changes with their tests, the flipped prompts."""
    runs = [comparison.first, *comparison.comparisons]
    names = short_names([run.run for run in runs])
    rows = [row for run, name in zip(runs, names, strict=True) for row in _rows(run.rates, name)]
    chart = figure("rates", rates_before_after(rows, x_title=ALL), "Each file's own rates", rows, COLUMNS)
    later = zip(names[1:], comparison.comparisons, strict=True)
    failed = [
        Paragraph(
            f"--fail-if {failed.condition} holds for {failed.run}"
            + ("" if failed.value is None else f": {failed.value:.4g}"),
            style="warning",
        )
        for failed in comparison.failed
    ]
    head: list[Block] = [*failed, chart]
    changes = [changes_section(names[0], name, run, "Rates on the prompts that both files have") for name, run in later]
    return _page(" and ".join(names), [Section("rates", "Rates", "Rates", head), *changes])


def _page(title: str, sections: Sequence[Section]) -> str:
    part: Markup = render("comparison.html", title=title, runs=[], sections=sections)
    return document(title, [part])


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the last parts of paths, or the paths where two would be the same."""
    short = [Path(path).name for path in paths]
    return short if len(set(short)) == len(short) else list(paths)


def comparison_section(
    names: Sequence[str], anchors: Sequence[str], records: Sequence[RunResults], comparison: Comparison
) -> Markup:
    """Return the rates and verdicts of the runs, the changes with their tests, and the flipped prompts.

    Args:
        anchors: the ids of the runs' articles.
        records: the results.json of each run.
        comparison: of the runs, in this order.
    """
    later = zip(names[1:], comparison.comparisons, strict=True)
    sections = [
        Section("runs", "", f"{len(names)} runs", [runs_table(names, records)]),
        *(changes_section(names[0], name, run, ON_RUNS) for name, run in later),
    ]
    runs = list(zip(anchors, names, strict=True))
    return render("comparison.html", title=" and ".join(names), runs=runs, sections=sections)


def changes_section(first: str, second: str, run: ComparedRun, caption: str) -> Section:
    """Return the changes of one later run with their tests, and the flipped prompts.

    Args:
        caption: of the table, which says on what the rates are.
    """
    flips = run.flips
    lines = [
        f"{run.matched.prompts:,} prompts in both; {len(flips):,} have another action; all rates together: "
        f"{run.move.replace('_', ' ')}. * significant at 5 % after Holm's correction."
    ]
    if len(flips) > MOST_FLIPS:
        lines.append(f"The first {MOST_FLIPS:,} of {len(flips):,} are shown.")
    blocks: list[Block] = [changes_table(caption, run, first, second), *lines]
    if flips:
        blocks.append(_flips(first, second, flips))
    return Section("changes", "", f"Changes from {first} to {second}", blocks)


def _flips(first: str, second: str, flips: Sequence[Flip]) -> Table:
    rows: list[list[Cell]] = []
    for flip in flips[:MOST_FLIPS]:
        label = flip.label or "unlabelled"
        quoted = Quoted(label, shortened(flip.text or "", MOST_OF_FLIP))
        rows.append([shortened(flip.id, 80), label, quoted, flip.first or "not judged", flip.second or "not judged"])
    return Table(f"The {len(flips):,} flipped prompts", ["id", "label", "prompt", first, second], rows, fold=True)


# -- one scored file ---------------------------------------------------------------------------------------------------


def _rows(rates: JointRates, name: str) -> list[Row]:
    return [{"rate": rate, "when": name, **fields(rates.of(rate))} for rate in RATES if rates.of(rate).n]


def _rates(card: Scorecard, name: str) -> Iterator[Block]:
    if card.rates is None:
        yield "No completion has a label, so there are no rates; labels come from --prompts FILE."
    else:
        rows = _rows(card.rates, name)
        yield figure("rates", rates_before_after(rows, x_title=ALL), "The joint rates", rows, COLUMNS)
        cells = [[RATE_MEANING[rate], f"{card.rates.of(rate):.1%}", f"{card.rates.of(rate).n:,}"] for rate in RATES]
        yield Table("Rates with 95 % intervals over independent groups", ["rate", "share", "n"], cells)
        yield from band_lines(card.judge_error_band)
        if card.corrected:
            yield from corrected_lines(card.corrected, card.rates)
    for title, head, estimates in (
        ("Right actions, with 95 % intervals", ["right action", "score"], right_action_estimates(card.right_action)),
        (
            "Right, wrong or no answer, with 95 % intervals",
            ["questions with a known answer", ""],
            known_answer_estimates(card),
        ),
        ("What became of them", ["questions that should not just be answered", ""], outcome_estimates(card)),
    ):
        known = [[what, f"{number:{spec}}", f"{number.n:,}"] for what, number, spec in estimates if number.known]
        if known:
            yield Table(title, [*head, "n"], known)
    if card.confidence is not None:
        yield from _confidence(card.confidence)
    notes = [
        f"{what}: {note.n}" + (f" ({', '.join(note.first)} …)" if note.first else "")
        for what, note in card.input.items()
    ]
    if notes:
        yield Paragraph("About the input: " + "; ".join(notes), style="caveat")


def _confidence(confidence: ConfidenceRecord) -> Iterator[Block]:
    series = f"{confidence.stated:,} answers" + (
        f"; {confidence.unstated:,} more state none" if confidence.unstated else ""
    )
    bins: list[Row] = [{"series": series, "x": each.stated, **fields(each.right)} for each in confidence.bins]
    chart = reliability(bins, {series: BLUE}, x_title="stated confidence", y_title="% of those answers that are right")
    named = {"x": "stated", "estimate": "share right", "low": "from", "high": "to", "n": "n"}
    yield figure("reliability", chart, "Stated confidence; on the grey line it is as it should be", bins, named)
    rows = [
        [f"{point.confidence:.0%}", f"{point.coverage:.1%}", f"{point.accuracy:.1%}", f"{point.accuracy.n:,}"]
        for point in confidence.curve
    ]
    head = ["confidence at least", "share of the questions", "share right of those", "n"]
    yield Table("Coverage and accuracy", head, rows)


def _mistakes(rate: str, rows: Sequence[Entry]) -> list[Block]:
    """Return the completions that count for a rate, with what decided each; nothing without any."""
    label, counted = RATES[rate]
    hits = [row for row in rows if row.case.label == label and row.action in counted]
    if not hits:
        return []
    cells: list[list[Cell]] = [
        [
            shortened(row.case.id, 80),
            Quoted(label, shortened(row.case.text or "", MOST_CHARACTERS)),
            row.action or "",
            Quoted(label, shortened(row.completion or "", MOST_CHARACTERS)),
            shortened(row.evidence, MOST_CHARACTERS),
        ]
        for row in hits[:MOST_ROWS]
    ]
    which = f"The {len(hits):,} completions" if len(hits) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(hits):,}"
    return [Table(which, ["id", "prompt", "action", "completion", "what decided it"], cells, fold=True)]


def _breakdowns(card: Scorecard) -> Iterator[Block]:
    by_label, actions = card.actions_by_label or {"all": card.actions}, list(card.actions)
    counts = [[label, *(f"{taken.get(action, 0):,}" for action in actions)] for label, taken in by_label.items()]
    yield Table("Actions by label", ["label", *actions], counts)
    if card.refused_by:
        refused = [[BY_MEANING[by], f"{n:,}"] for by, n in card.refused_by.items()]
        yield Table("Of these refused", ["refusals that are no answer of the model", "n"], refused)
    means = [
        [FIELD_MEANING[name], f"{field.estimate:.2f}", f"{field.n:,}"]
        for name, field in card.fields.items()
        if field.known
    ]
    if means:
        yield Table("The five fields, 0 to 1", ["field", "mean", "n"], means)
    for column, groups in (card.by or {}).items():
        rows = [[shortened(value, 80), *(_share(rates, rate) for rate in RATES)] for value, rates in groups.items()]
        yield Table(f"Rates by {column}", [column, *RATES], rows, fold=True)


def _share(rates: JointRates, rate: str) -> str:
    share = rates.of(rate)
    return f"{share:.1%}, n {share.n:,}" if share.n else "none"
