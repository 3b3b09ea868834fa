"""Text and tables of the verdicts on categories, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.categories.members import DECLINES, SETS, DeclineSet
from experiments.categories.results import CategoryGeometry, CategoryResults, SetResult, Tradeoff
from experiments.run.wording import p_text
from probes.statistics.intervals import Estimate

SENTENCES = {
    "one_knob": "One knob",
    "distinct": "Distinct knobs",
    "partly_shared": "Partly shared",
    "no_effect": "No effect",
    "not_applicable": "Not applicable",
    "inconclusive": "Inconclusive",
}
Table = tuple[str, list[str], list[list[str]]]  # title, header, rows


def print_categories(directory: Path, found: CategoryResults) -> None:
    """Print each way of declining's verdict, the ablation matrix, the pairs and the directions' cosines."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    console = Console(highlight=False)
    for declines in SETS:
        of = found.of(declines)
        console.print(
            f"[bold]{DECLINES[declines].capitalize()}:[/] " + escape(category_sentence(of)),
            soft_wrap=not console.is_terminal,
        )
        for title, head, rows in [*category_tables(declines, of), *_tradeoff_tables(declines, found.tradeoff)]:
            table = RichTable(*head, title=title, title_justify="left")
            for row in rows:
                table.add_row(*map(escape, row))
            console.print(table)
        more = tradeoff_lines(found.tradeoff) if found.tradeoff is not None and declines == "over_refusal" else []
        for line in [*more, *missing_lines(of)]:
            console.print(escape(line), soft_wrap=not console.is_terminal)
    console.print(f"Written: {directory / 'stages' / 'categories.json'}", soft_wrap=not console.is_terminal)


def category_sentence(of: SetResult) -> str:
    """Return the verdict on one way of declining in a sentence or two."""
    text = f"{SENTENCES[of.verdict]}: {of.reason}."
    if of.rank is None:
        return text
    least = "" if of.rank_settled else "at least "
    return f"{text} Rank of all categories' directions: {least}{of.rank} of {len(of.matrix)}."


def tradeoff_lines(of: Tradeoff) -> list[str]:
    """Return which ways hold, and how many prompts' tasks are recognised."""
    held = list(dict.fromkeys(point.way for point in of.points if point.holds))
    lines = [f"Lowers over-refusal at a loss below the margin: {', '.join(held) or 'none of the ways'}."]
    if of.recognised:
        shares = " and ".join(f"{share:.0%} of the {label} ones" for label, share in of.recognised.items())
        lines.append(f"Trajectories move the refused prompts whose task is recognised: {shares}.")
    return lines


def missing_lines(of: SetResult) -> list[str]:
    """Return why each category was not tested."""
    return [f"Not tested, {name}: {reason}." for name, reason in of.missing.items()]


def category_tables(declines: DeclineSet, of: SetResult) -> list[Table]:
    """Return the tables of one way of declining; none if its categories were not tested."""
    if not of.matrix:
        return []
    names = list(of.matrix)
    does = DECLINES[declines]
    ablated = [[a, *(f"{of.matrix[a][b]:.0%}" for b in names)] for a in names]
    ablated.append(["permuted labels", *(f"{of.controls[b]:.0%}" for b in names)])
    ablated += [[f"first {k + 1} of all", *(f"{of.common[b][k]:.0%}" for b in names)] for k in range(len(names))]
    ablated.append(["n", *(str(of.matrix[b][b].n) for b in names)])
    pairs = [
        [
            " and ".join(pair.between),
            SENTENCES[pair.verdict],
            "" if pair.p is None else p_text(pair.p),
            *(_points(pair.intervals[f"own minus other on {name}"]) for name in pair.between),
        ]
        for pair in of.pairs
    ]
    head = ["categories", "verdict", "p (Holm)", "own - other, first", "own - other, second"]
    tables: list[Table] = [
        (
            f"{does.capitalize()} that stop when a category's direction is ablated (rows: ablated; 95 %)",
            ["ablated", *names],
            ablated,
        ),
        (f"Pairs of categories ({does}; percentage points)", head, pairs),
    ]
    return [*tables, *_geometry_tables({"write": of.write_directions, "read": of.read_directions})]


def _geometry_tables(of: Mapping[str, CategoryGeometry | None]) -> list[Table]:
    tables: list[Table] = []
    for what, found in of.items():
        if found is None:
            continue
        where = f"layer {found.layer}, {found.position}"
        cosines = [
            [pair, f"{g.cosine:.2f}", f"{g.fitted_cosine:.2f}", p_text(g.p_permuted)] for pair, g in found.pairs.items()
        ]
        tables.append(
            (
                f"Cosines of {what} directions ({where})",
                ["categories", "noise-free (95 %)", "fitted", "p, permuted labels"],
                cosines,
            )
        )
        names = list(found.probe_auroc)
        auroc = [[a, *(f"{found.probe_auroc[a][b]:.2f}" for b in names)] for a in names]
        tables.append(
            (
                f"AUROC of {what} directions (rows: fitted on; columns: tested on; held out)",
                ["fitted on", *names],
                auroc,
            )
        )
    return tables


def _tradeoff_tables(declines: DeclineSet, of: Tradeoff | None) -> list[Table]:
    if of is None or declines != "over_refusal":
        return []
    rows = [
        [
            p.way,
            f"{p.strength:g}",
            f"{p.over_refusal_gone:.0%}",
            f"{p.harmful_refusal_lost:.0%}",
            "yes" if p.holds else "",
        ]
        for p in of.points
    ]
    angles = ", ".join(f"{angle:.0f}" for angle in of.angles)
    title = f"Ways of lowering over-refusal (held out; the normative direction is {angles} degrees off the subspace)"
    return [(title, ["way", "strength", "over-refusal gone", "harmful refusal lost", "holds"], rows)]


def _points(of: Estimate) -> str:
    low, high = (100 * v for v in (of.low, of.high))
    return f"{100 * of.estimate:.0f} [{low:.0f}, {high:.0f}]"
