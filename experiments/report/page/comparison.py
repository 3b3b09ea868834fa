"""Several runs side by side, and the changes from the first to each later one."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from experiments.report.blocks import Block, Cell, Lines, Quoted, Section, Table
from experiments.report.page.document import render, shortened
from experiments.report.page.summary import runs_table
from experiments.report.results import RunResults
from scoring.compare.record import ComparedRun, Comparison, Flip
from scoring.wording import RATE_MEANING

MOST_FLIPS = 2000
MOST_CHARACTERS = 400
ON_RUNS = "Rates without dials on the prompts that both runs have, of every part"


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
    rows = [
        [
            RATE_MEANING[name],
            _share(change.first),
            _share(change.second),
            f"{change.difference:+.1%}" if change.difference.known else "not known",
            f"{change.mcnemar_p_holm:.2g}{' *' if change.shown else ''}",
            str(change.difference.n),
        ]
        for name, change in run.changes.items()
    ]
    head = ["rate", first, second, "change (95 %)", "McNemar p (Holm)", "n"]
    flips = run.flips
    lines = [
        f"{run.matched.prompts:,} prompts in both; {len(flips):,} have another action; all rates together: "
        f"{run.move.replace('_', ' ')}. * significant at 5 % after Holm's correction."
    ]
    if len(flips) > MOST_FLIPS:
        lines.append(f"The first {MOST_FLIPS:,} of {len(flips):,} are shown.")
    blocks: list[Block] = [Table(head, rows, caption), Lines(lines)]
    if flips:
        blocks.append(_flips(first, second, flips))
    return Section("changes", "", f"Changes from {first} to {second}", blocks)


def _flips(first: str, second: str, flips: Sequence[Flip]) -> Table:
    rows: list[list[Cell]] = []
    for flip in flips[:MOST_FLIPS]:
        label = flip.label or "unlabelled"
        quoted = Quoted(label, shortened(flip.text or "", MOST_CHARACTERS))
        rows.append([shortened(flip.id, 80), label, quoted, _action(flip.first), _action(flip.second)])
    return Table(["id", "label", "prompt", first, second], rows, f"The {len(flips):,} flipped prompts", fold=True)


def _share(value: float | None) -> str:
    return "none judged" if value is None else f"{value:.1%}"


def _action(action: str | None) -> str:
    return action or "not judged"
