"""Pages of `refusal score --html` and `refusal compare --html`, for scored files without a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from experiments.charts.rates import rates_before_after
from experiments.charts.shares import reliability
from experiments.charts.specification import BLUE, Row
from experiments.report.blocks import Block, Cell, Lines, Quoted, Section, Table, figure
from experiments.report.page.comparison import changes_section
from experiments.report.page.document import document, render, shortened
from extract.atomic_write import atomic_file
from scoring.abstaining.confidence import ConfidenceRecord
from scoring.compare.record import Comparison
from scoring.labels.text import band_lines, corrected_lines
from scoring.ledger import Entry
from scoring.rates import RATES, JointRates
from scoring.scorecard_record import Scorecard
from scoring.scorecard_text import FIELD_MEANING
from scoring.wording import BY_MEANING, RATE_MEANING, known_answer_estimates, outcome_estimates, right_action_estimates

MOST_ROWS = 500  # of the completions that count for a rate
MOST_CHARACTERS = 600
COLUMNS = {"rate": "rate", "when": "file", "value": "rate, %", "low": "from, %", "high": "to, %", "n": "n"}
ALL = "% of labelled completions; lines: 95 % intervals"


def scorecard_page(card: Scorecard, rows: Sequence[Entry], name: str) -> str:
    """Return the page of one scored file.

    Args:
        rows: the judged completions, of scored.jsonl.
        name: of the file, for the title.
    """
    sections = [Section("rates", "Rates", f"{card.n:,} completions", list(_rates(card, name)))]
    sections += [
        Section(f"mistakes-{rate}", rate, RATE_MEANING[rate], found)
        for rate in RATES
        if (found := _mistakes(rate, rows))
    ]
    more = list(_breakdowns(card))
    sections += [Section("more", "More", "Actions, scores and groups", more)] if more else []
    return _page(f"Scorecard: {name}", sections)


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison: the rates of each file, the changes with their tests, the flipped prompts."""
    runs = [comparison.first, *comparison.comparisons]
    names = _names([run.run for run in runs])
    rows = [row for run, name in zip(runs, names, strict=True) for row in _rows(run.rates, name)]
    chart = figure("rates", rates_before_after(rows, x_title=ALL), "Each file's own rates", rows, COLUMNS)
    later = zip(names[1:], comparison.comparisons, strict=True)
    failed = [
        f"--fail-if {one.condition} holds for {one.run}" + ("" if one.value is None else f": {one.value:.4g}")
        for one in comparison.failed
    ]
    head: list[Block] = [*([Lines(failed, "warning")] if failed else []), chart]
    changes = [changes_section(names[0], name, run, "Rates on the prompts that both files have") for name, run in later]
    return _page(" and ".join(names), [Section("rates", "Rates", "Rates", head), *changes])


def write_page(html: str, path: Path) -> None:
    """Write a page; renamed into place when it is whole."""
    with atomic_file(path) as sink:
        sink.write(html.encode("utf-8", "backslashreplace"))


def _page(title: str, sections: Sequence[Section]) -> str:
    part: Markup = render("comparison.html", title=title, runs=[], sections=sections)
    return document(title, [part])


def _names(paths: Sequence[str]) -> list[str]:
    """Return the last parts of paths, or the paths where two would be the same."""
    short = [Path(path).name for path in paths]
    return short if len(set(short)) == len(short) else list(paths)


def _rows(rates: JointRates, name: str) -> list[Row]:
    found = {rate: rates.of(rate) for rate in RATES}
    return [
        {"rate": rate, "when": name, "value": of.estimate, "low": of.low, "high": of.high, "n": of.n, "limit": None}
        for rate, of in found.items()
        if of.n
    ]


def _rates(card: Scorecard, name: str) -> Iterator[Block]:
    if card.rates is None:
        yield Lines(["No completion has a label, so there are no rates; labels come from --prompts FILE."])
    else:
        rows = _rows(card.rates, name)
        yield figure("rates", rates_before_after(rows, x_title=ALL), "The joint rates", rows, COLUMNS)
        cells = [[RATE_MEANING[rate], f"{card.rates.of(rate):.1%}", f"{card.rates.of(rate).n:,}"] for rate in RATES]
        yield Table(["rate", "share", "n"], cells, "Rates with 95 % intervals over independent groups")
        lines = [*band_lines(card.judge_error_band)]
        lines += [*corrected_lines(card.corrected, card.rates)] if card.corrected else []
        if lines:
            yield Lines(lines)
    scores = [(what, of, spec) for what, of, spec in right_action_estimates(card.right_action) if of.known]
    if scores:
        rows_of = [[what, f"{of:{spec}}", f"{of.n:,}"] for what, of, spec in scores]
        yield Table(["right action", "score", "n"], rows_of, "Right actions, with 95 % intervals")
    known = [[what, f"{of:{spec}}", f"{of.n:,}"] for what, of, spec in known_answer_estimates(card)]
    if known:
        yield Table(["questions with a known answer", "", "n"], known, "Right, wrong or no answer, with 95 % intervals")
    became = [[what, f"{of:{spec}}", f"{of.n:,}"] for what, of, spec in outcome_estimates(card)]
    if became:
        yield Table(["questions that should not just be answered", "", "n"], became, "What became of them")
    if card.confidence is not None:
        yield from _confidence(card.confidence)
    notes = [
        f"{what}: {note.n}" + (f" ({', '.join(note.first)} …)" if note.first else "")
        for what, note in card.input.items()
    ]
    if notes:
        yield Lines(["About the input: " + "; ".join(notes)], "caveat")


def _confidence(found: ConfidenceRecord) -> Iterator[Block]:
    series = f"{found.stated:,} answers" + (f"; {found.unstated:,} more state none" if found.unstated else "")
    bins: list[Row] = [
        {
            "series": series,
            "x": one.stated,
            "y": one.right.estimate,
            "low": one.right.low,
            "high": one.right.high,
            "n": one.right.n,
        }
        for one in found.bins
    ]
    chart = reliability(bins, {series: BLUE}, x_title="stated confidence", y_title="% of those answers that are right")
    named = {"x": "stated", "y": "share right", "low": "from", "high": "to", "n": "n"}
    yield figure("reliability", chart, "Stated confidence; on the grey line it is as it should be", bins, named)
    rows = [
        [f"{one.confidence:.0%}", f"{one.coverage:.1%}", f"{one.accuracy:.1%}", f"{one.accuracy.n:,}"]
        for one in found.curve
    ]
    yield Table(
        ["confidence at least", "share of the questions", "share right of those", "n"], rows, "Coverage and accuracy"
    )


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
    return [Table(["id", "prompt", "action", "completion", "what decided it"], cells, which, fold=True)]


def _breakdowns(card: Scorecard) -> Iterator[Block]:
    by_label = card.actions_by_label or {"all": card.actions}
    actions = list(card.actions)
    yield Table(
        ["label", *actions],
        [[label, *(f"{found.get(action, 0):,}" for action in actions)] for label, found in by_label.items()],
        "Actions by label",
    )
    if card.refused_by:
        yield Table(
            ["refusals that are no answer of the model", "n"],
            [[BY_MEANING[by], f"{n:,}"] for by, n in card.refused_by.items()],
            "Of these refused",
        )
    fields = [[FIELD_MEANING[name], f"{of.estimate:.2f}", f"{of.n:,}"] for name, of in card.fields.items() if of.known]
    if fields:
        yield Table(["field", "mean", "n"], fields, "The five fields, 0 to 1")
    for column, groups in (card.by or {}).items():
        rows = [[shortened(value, 80), *(_share(rates, rate) for rate in RATES)] for value, rates in groups.items()]
        yield Table([column, *RATES], rows, f"Rates by {column}", fold=True)


def _share(rates: JointRates, rate: str) -> str:
    found = rates.of(rate)
    return f"{found:.1%}, n {found.n:,}" if found.n else "none"
