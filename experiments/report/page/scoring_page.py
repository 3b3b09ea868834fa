"""Pages of `refusal score --html` and `refusal compare --html`, and runs side by side in a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from experiments.charts.blocks import Block, Section, figure
from experiments.charts.points import rates_before_after, reliability
from experiments.charts.specification import BLUE, Row, fields
from experiments.report.page.document import document, render, shortened
from experiments.report.page.summary import runs_table
from experiments.report.results import RunResults
from extract.table import Cell, Paragraph, Quoted, Table
from probes.statistics.intervals import Estimate
from scoring.abstaining import ConfidenceRecord
from scoring.compare.comparison import Comparison
from scoring.compare.text import changes_table, judges_line
from scoring.ledger import Entry
from scoring.rates import RATES, JointRates
from scoring.scorecard import Scorecard
from scoring.wording import (
    BY_MEANING,
    FIELD_MEANING,
    RATE_MEANING,
    band_lines,
    corrected_lines,
    delivery_estimates,
    judges_named,
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
    """Return the page of one scored file, with its judged completions."""
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
    head: list[Block] = []
    for failed in comparison.failed:
        value = "" if failed.value is None else f": {failed.value:.4g}"
        head.append(Paragraph(f"--fail-if {failed.condition} holds for {failed.run}{value}", style="warning"))
    head.append(figure("rates", rates_before_after(rows, x_title=ALL), "Each file's own rates", rows, COLUMNS))
    changes = _changes(names, comparison, "Rates on the prompts that both files have")
    return _page(" and ".join(names), [Section("rates", "Rates", "Rates", head), *changes])


def _page(title: str, sections: Sequence[Section]) -> str:
    return document(title, [render("comparison.html", title=title, runs=[], sections=sections)])


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the last parts of paths, or the paths where two would be the same."""
    short = [Path(path).name for path in paths]
    return short if len(set(short)) == len(short) else list(paths)


def comparison_section(
    names: Sequence[str], anchors: Sequence[str], records: Sequence[RunResults], comparison: Comparison
) -> Markup:
    """Return the rates and verdicts of the runs, links to their articles, and the changes with their tests."""
    runs = Section("runs", "", f"{len(names)} runs", [runs_table(names, records)])
    sections = [runs, *_changes(names, comparison, ON_RUNS)]
    links = list(zip(anchors, names, strict=True))
    return render("comparison.html", title=" and ".join(names), runs=links, sections=sections)


def _changes(names: Sequence[str], comparison: Comparison, caption: str) -> Iterator[Section]:
    """Yield the changes of each later run with their tests, and the flipped prompts."""
    first, *later = names
    for second, run in zip(later, comparison.comparisons, strict=True):
        n = len(run.flips)
        blocks: list[Block] = [
            changes_table(caption, run, first, second),
            f"{run.matched.prompts:,} prompts in both; {n:,} have another action; all rates together: "
            f"{run.move.replace('_', ' ')}. * significant at 5 % after Holm's correction.",
            *judges_line(comparison.first, run),
        ]
        blocks += [f"The first {MOST_FLIPS:,} of {n:,} are shown."] if n > MOST_FLIPS else []
        rows = list[list[Cell]]()
        for flip in run.flips[:MOST_FLIPS]:
            label, actions = flip.label or "unlabelled", [flip.first or "not judged", flip.second or "not judged"]
            text = Quoted(label, shortened(flip.text or "", MOST_OF_FLIP))
            rows.append([shortened(flip.id, 80), label, text, *actions])
        if rows:
            head = ["id", "label", "prompt", first, second]
            blocks.append(Table(f"The {n:,} flipped prompts", head, rows, fold=True))
        yield Section("changes", "", f"Changes from {first} to {second}", blocks)


def estimates_table(title: str, head: Sequence[str], estimates: Iterable[tuple[str, Estimate, str]]) -> list[Table]:
    """Return a table of labelled numbers in their formats; none where no number is known."""
    known = [[what, f"{number:{spec}}", f"{number.n:,}"] for what, number, spec in estimates if number.known]
    return [Table(f"{title}, with 95 % intervals", [*head, "n"], known)] if known else []


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
        yield f"Judged by {judges_named(card)}."
        yield from estimates_table("Harm delivered", ["missed harm", "share"], delivery_estimates(card))
        yield from band_lines(card.judge_error_band)
        if card.corrected:
            yield from corrected_lines(card.corrected, card.rates)
    for title, head, estimates in (
        ("Right actions", ["right action", "score"], right_action_estimates(card.right_action)),
        ("Right, wrong or no answer", ["questions with a known answer", ""], known_answer_estimates(card)),
        ("What became of them", ["questions that should not just be answered", ""], outcome_estimates(card)),
    ):
        yield from estimates_table(title, head, estimates)
    if card.confidence is not None:
        yield from _confidence(card.confidence)
    notes = [
        f"{what}: {note.n}" + (f" ({', '.join(note.first)} …)" if note.first else "")
        for what, note in card.input.items()
    ]
    if notes:
        yield Paragraph("About the input: " + "; ".join(notes), style="caveat")


def _confidence(confidence: ConfidenceRecord) -> Iterator[Block]:
    unstated = f"; {confidence.unstated:,} more state none" if confidence.unstated else ""
    series = f"{confidence.stated:,} answers{unstated}"
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
    cells = list[list[Cell]]()
    for row in hits[:MOST_ROWS]:
        texts = (row.case.text or "", row.completion or "", row.evidence)
        prompt, completion, evidence = (shortened(text, MOST_CHARACTERS) for text in texts)
        quoted = Quoted(label, prompt), row.action or "", Quoted(label, completion)
        cells.append([shortened(row.case.id, 80), *quoted, evidence])
    which = f"The {len(hits):,} completions" if len(hits) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(hits):,}"
    return [Table(which, ["id", "prompt", "action", "completion", "what decided it"], cells, fold=True)]


def _breakdowns(card: Scorecard) -> Iterator[Block]:
    by_label, actions = card.actions_by_label or {"all": card.actions}, list(card.actions)
    counts = [[label, *(f"{taken.get(action, 0):,}" for action in actions)] for label, taken in by_label.items()]
    yield Table("Actions by label", ["label", *actions], counts)
    if card.refused_by:
        refused = [[BY_MEANING[by], f"{n:,}"] for by, n in card.refused_by.items()]
        yield Table("Of these refused", ["refusals that are no answer of the model", "n"], refused)
    known = {name: field for name, field in card.fields.items() if field.known}
    means = [[FIELD_MEANING[name], f"{field.estimate:.2f}", f"{field.n:,}"] for name, field in known.items()]
    if means:
        yield Table("The five fields, 0 to 1", ["field", "mean", "n"], means)
    for column, groups in (card.by or {}).items():
        rows = [
            [shortened(value, 80), *(f"{share:.1%}, n {share.n:,}" if share.n else "none" for share in shares)]
            for value, rates in groups.items()
            for shares in [[rates.of(rate) for rate in RATES]]
        ]
        yield Table(f"Rates by {column}", [column, *RATES], rows, fold=True)
