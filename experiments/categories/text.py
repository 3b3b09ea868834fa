"""What the comparison of categories says: verdicts, matrices, ways of lowering over-refusal, places by layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.categories.members import DECLINES, SETS, DeclineSet
from experiments.categories.results import CategoryGeometry, CategoryResults, SetResult, Tradeoff
from experiments.charts.blocks import Block, Figure, Heading, figure
from experiments.charts.grids import heat_map
from experiments.charts.points import lowering
from experiments.charts.specification import Row, fields
from experiments.probing.results import BoundaryRow
from experiments.probing.text import boundary_chart, boundary_rows
from experiments.run.wording import p_text, points
from extract.table import Paragraph, Table, print_blocks
from probes.statistics.intervals import Estimate

SENTENCES = {
    "one_knob": "One knob",
    "distinct": "Distinct knobs",
    "partly_shared": "Partly shared",
    "no_effect": "No effect",
    "not_applicable": "Not applicable",
    "inconclusive": "Inconclusive",
}
NUMBERS = {"row": "ablated", "column": "category", "estimate": "stop, %", "low": "from, %", "high": "to, %", "n": "n"}
PLACES = {"series": "category", "layer": "layer", "estimate": "place", "low": "from", "high": "to", "n": "n"}
POINTS = {"way": "way", "strength": "strength", "x": "over-refusal gone, %", "y": "harmful refusal lost, %"}
MOST_LINES = 4  # categories in one chart over layers
WIDEST = 2.0  # interval of a place that is drawn, in distances of the two means


def print_categories(directory: Path, results: CategoryResults) -> None:
    """Print each way of declining's verdict, the ablation matrix, the pairs and the directions' cosines."""
    for declines in SETS:
        result = results.of(declines)
        lowered = results.tradeoff if declines == "over_refusal" else None
        print_blocks([Paragraph(category_sentence(result), f"{DECLINES[declines].capitalize()}:")])
        print_blocks(category_tables(declines, result))
        print_blocks([] if lowered is None else [_tradeoff_table(lowered), *tradeoff_lines(lowered)])
        print_blocks(missing_lines(result))
    print_blocks([f"Written: {directory / 'stages' / 'categories.json'}"])


def category_blocks(results: CategoryResults | None) -> list[Block]:
    """Return the verdicts, matrices, pairs and charts; nothing if the run has not compared its categories."""
    if results is None:
        return []
    blocks: list[Block] = []
    for declines in SETS:
        result = results.of(declines)
        blocks += [Heading(f"Categories: {DECLINES[declines]}"), category_sentence(result), *missing_lines(result)]
        if result.matrix:
            blocks += [_matrix(declines, result), *category_tables(declines, result)[1:]]
    if results.tradeoff is not None:
        blocks.append(Heading("Lowering over-refusal: what goes, what is lost"))
        blocks += [*tradeoff_lines(results.tradeoff), _lowering(results.tradeoff, results.margin)]
    return blocks + _places(results.places)


def category_sentence(result: SetResult) -> str:
    """Return the verdict on one way of declining in a sentence or two."""
    text = f"{SENTENCES[result.verdict]}: {result.reason}."
    if result.rank is None:
        return text
    least = "" if result.rank_settled else "at least "
    return f"{text} Rank of all categories' directions: {least}{result.rank} of {len(result.matrix)}."


def tradeoff_lines(tradeoff: Tradeoff) -> list[str]:
    """Return which ways hold, and how many prompts' tasks are recognised."""
    held = list(dict.fromkeys(point.way for point in tradeoff.points if point.holds))
    lines = [f"Lowers over-refusal at a loss below the margin: {', '.join(held) or 'none of the ways'}."]
    if tradeoff.recognised:
        shares = " and ".join(f"{share:.0%} of the {label} ones" for label, share in tradeoff.recognised.items())
        lines.append(f"Trajectories move the refused prompts whose task is recognised: {shares}.")
    return lines


def missing_lines(result: SetResult) -> list[str]:
    """Return why each category was not tested."""
    return [f"Not tested, {name}: {reason}." for name, reason in result.missing.items()]


def category_tables(declines: DeclineSet, result: SetResult) -> list[Table]:
    """Return the tables of one way of declining, first the ablations; none if its categories were not tested."""
    if not result.matrix:
        return []
    does, names = DECLINES[declines], list(result.matrix)
    ablated = [[row, *(f"{shares[name]:.0%}" for name in names)] for row, shares in _ablations(result).items()]
    ablated.append(["n", *(str(result.matrix[name][name].n) for name in names)])
    pairs = [
        [
            " and ".join(pair.between),
            SENTENCES[pair.verdict],
            "" if pair.p is None else p_text(pair.p),
            *(points(pair.intervals[f"own minus other on {name}"]) for name in pair.between),
        ]
        for pair in result.pairs
    ]
    title = f"{does.capitalize()} that stop when a category's direction is ablated (rows: ablated; 95 %)"
    head = ["categories", "verdict", "p (Holm)", "own - other, first", "own - other, second"]
    tables = [
        Table(title, ["ablated", *names], ablated),
        Table(f"Pairs of categories ({does}; percentage points)", head, pairs),
    ]
    for what, directions in {"write": result.write_directions, "read": result.read_directions}.items():
        tables += [] if directions is None else _geometry_tables(what, directions)
    return tables


def _ablations(result: SetResult) -> dict[str, Mapping[str, Estimate]]:
    """Return the shares that stop by what is ablated: each category, permuted labels, the common directions."""
    names = list(result.matrix)
    common = {f"first {k + 1} of all": {name: result.common[name][k] for name in names} for k in range(len(names))}
    return {**result.matrix, "permuted labels": result.controls, **common}


def _geometry_tables(what: str, directions: CategoryGeometry) -> list[Table]:
    cosines = [
        [pair, f"{cosine.cosine:.2f}", f"{cosine.fitted_cosine:.2f}", p_text(cosine.p_permuted)]
        for pair, cosine in directions.pairs.items()
    ]
    head = ["categories", "noise-free (95 %)", "fitted", "p, permuted labels"]
    title = f"Cosines of {what} directions (layer {directions.layer}, {directions.position})"
    names = list(directions.probe_auroc)
    auroc = [[name, *(f"{row[other]:.2f}" for other in names)] for name, row in directions.probe_auroc.items()]
    transfer = f"AUROC of {what} directions (rows: fitted on; columns: tested on; held out)"
    return [Table(title, head, cosines, fold=True), Table(transfer, ["fitted on", *names], auroc, fold=True)]


def _tradeoff_table(tradeoff: Tradeoff) -> Table:
    rows = [
        [p.way, f"{p.strength:g}", f"{p.over_refusal_gone:.0%}", f"{p.harmful_refusal_lost:.0%}", "yes" * p.holds]
        for p in tradeoff.points
    ]
    angles = ", ".join(f"{angle:.0f}" for angle in tradeoff.angles)
    title = f"Ways of lowering over-refusal (held out; the normative direction is {angles} degrees off the subspace)"
    return Table(title, ["way", "strength", "over-refusal gone", "harmful refusal lost", "holds"], rows)


def _matrix(declines: DeclineSet, result: SetResult) -> Figure:
    cells: list[Row] = [
        {"row": ablated, "column": f"{name}, n = {share.n}", **fields(share)}
        for ablated, shares in _ablations(result).items()
        for name, share in shares.items()
    ]
    axes = {"columns": "category of the prompts", "lines": "ablated direction", "unit": "stop"}
    chart = heat_map(cells, title="", domain=(0.0, 1.0), number=".0%", column_width=90, **axes)
    caption = f"{DECLINES[declines].capitalize()} that stop when a category's direction is ablated, held out (95 %)"
    return figure(f"categories_{declines}", chart, caption, cells, NUMBERS)


def _lowering(tradeoff: Tradeoff, margin: float) -> Figure:
    rows = list[Row]()
    for p in tradeoff.points:
        gone, lost = fields(p.over_refusal_gone, "x"), fields(p.harmful_refusal_lost, "y")
        rows.append({"way": p.way, "strength": p.strength, **gone, **lost})
    chart = lowering(rows, x_title="over-refusal gone", y_title="harmful refusal lost", limit=margin)
    caption = (
        "Refused benign prompts that are answered, and refused harmful ones that are, under each way of lowering "
        "over-refusal at strengths from 0.25 to 1 (larger points), on held-out prompts; the dashed line is the margin "
        f"({margin:.0%})"
    )
    return figure("lowering", chart, caption, rows, POINTS)


def _places(places: Mapping[str, tuple[BoundaryRow, ...]]) -> list[Block]:
    """Return where each category's over-refused prompts lie; a place that is hardly known would stretch the axis."""
    rows = [row for name, by_layer in places.items() for row in boundary_rows(by_layer, name)]
    ends = [(row, row["low"], row["high"]) for row in rows]
    known = [r for r, low, high in ends if isinstance(low, float) and isinstance(high, float) and high - low <= WIDEST]
    if not known:
        return []
    shown = list(dict.fromkeys(row["series"] for row in known))[:MOST_LINES]
    position = next(iter(places.values()))[0].position
    caption = (
        "Where each category's over-refused prompts lie between the means of its answered benign and its harmful "
        f"ones, at {position} (95 %); layers at which the two means are hardly apart are not drawn"
        + ("" if len(shown) == len(places) else f"; {len(shown)} of {len(places)} categories")
    )
    chart = boundary_chart([row for row in known if row["series"] in shown])
    return [Heading("Where categories part, over the layers"), figure("category_places", chart, caption, rows, PLACES)]
