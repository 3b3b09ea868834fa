"""The section on categories: one knob or many, over-refusal by task, where categories part over the layers."""

from __future__ import annotations

from experiments.categories.members import DECLINES, SETS, DeclineSet
from experiments.categories.results import CategoryResults, SetResult, Tradeoff
from experiments.categories.text import category_sentence, category_tables, missing_lines, tradeoff_lines
from experiments.charts.heat_map import heat_map
from experiments.charts.layers import by_layer
from experiments.charts.lowering import lowering
from experiments.charts.specification import Row
from experiments.probing.geometry_results import BoundaryRow
from experiments.report.blocks import Block, Heading, Lines, Table, figure
from experiments.report.figures import boundary_rows

CELLS = {"row": "ablated", "column": "category", "value": "stop, %", "low": "from, %", "high": "to, %", "n": "n"}
PLACES = {"series": "category", "layer": "layer", "value": "place", "low": "from", "high": "to", "n": "n"}
POINTS = {"way": "way", "strength": "strength", "x": "over-refusal gone, %", "y": "harmful refusal lost, %"}
MOST_LINES = 4  # categories in one chart over layers
WIDEST = 2.0  # interval of a place that is drawn, in distances of the two means


def category_blocks(found: CategoryResults | None) -> list[Block]:
    """Return the verdicts, matrices, pairs and charts; nothing if the run has not compared its categories."""
    if found is None:
        return []
    blocks = [block for declines in SETS for block in _of_set(declines, found.of(declines))]
    if found.tradeoff is not None:
        blocks += [Heading("Lowering over-refusal: what goes, what is lost"), *_tradeoff(found.tradeoff, found.margin)]
    return [*blocks, *(_places(found.places) if found.places else [])]


def _of_set(declines: DeclineSet, of: SetResult) -> list[Block]:
    lines = [category_sentence(of), *missing_lines(of)]
    blocks: list[Block] = [Heading(f"Categories: {DECLINES[declines]}"), Lines(lines)]
    if not of.matrix:
        return blocks
    cells = matrix_cells(of)
    chart = heat_map(
        cells,
        title="",
        columns="category of the prompts",
        lines="ablated direction",
        unit="stop",
        domain=(0.0, 1.0),
        number=".0%",
        column_width=90,
    )
    caption = f"{DECLINES[declines].capitalize()} that stop when a category's direction is ablated, held out (95 %)"
    blocks.append(figure(f"categories_{declines}", chart, caption, cells, CELLS))
    tables = category_tables(declines, of)[1:]
    return [*blocks, *(Table(head, rows, title, fold=i > 0) for i, (title, head, rows) in enumerate(tables))]


def matrix_cells(of: SetResult) -> list[Row]:
    """Return the cells of the matrix of ablations: of each category, of permuted labels, of the common directions."""
    rows = dict(of.matrix) | {"permuted labels": of.controls}
    rows |= {f"first {k + 1} of all": {name: of.common[name][k] for name in of.matrix} for k in range(len(of.matrix))}
    return [
        {
            "row": ablated,
            "column": f"{name}, n = {share.n}",
            "value": share.estimate,
            "low": share.low,
            "high": share.high,
            "n": share.n,
        }
        for ablated, shares in rows.items()
        for name, share in shares.items()
    ]


def _tradeoff(of: Tradeoff, margin: float) -> list[Block]:
    rows = tradeoff_rows(of)
    chart = lowering(rows, x_title="over-refusal gone", y_title="harmful refusal lost", limit=margin)
    caption = (
        "Refused benign prompts that are answered, and refused harmful ones that are, under each way of lowering "
        f"over-refusal at strengths from 0.25 to 1 (larger points), on held-out prompts; the dashed line is the margin "
        f"({margin:.0%})"
    )
    return [Lines(tradeoff_lines(of)), figure("lowering", chart, caption, rows, POINTS)]


def tradeoff_rows(of: Tradeoff) -> list[Row]:
    """Return the points of the ways of lowering over-refusal."""
    return [
        {
            "way": p.way,
            "strength": p.strength,
            "x": p.over_refusal_gone.estimate,
            "x_low": p.over_refusal_gone.low,
            "x_high": p.over_refusal_gone.high,
            "y": p.harmful_refusal_lost.estimate,
            "y_low": p.harmful_refusal_lost.low,
            "y_high": p.harmful_refusal_lost.high,
        }
        for p in of.points
    ]


def _places(places: dict[str, tuple[BoundaryRow, ...]]) -> list[Block]:
    rows = place_rows(places)
    known = [row for row in rows if _is_known(row)]
    if not known:
        return []
    shown = list(dict.fromkeys(row["series"] for row in known))[:MOST_LINES]
    charted = [row for row in known if row["series"] in shown]
    position = next(iter(places.values()))[0].position
    chart = by_layer(charted, y_title="0: answered benign, 1: harmful", reference=0.5)
    caption = (
        "Where each category's over-refused prompts lie between the means of its answered benign and its harmful "
        f"ones, at {position} (95 %)"
        + "; layers at which the two means are hardly apart are not drawn"
        + ("" if len(shown) == len(places) else f"; {len(shown)} of {len(places)} categories")
    )
    return [Heading("Where categories part, over the layers"), figure("category_places", chart, caption, rows, PLACES)]


def _is_known(row: Row) -> bool:
    """Return whether a place is known to within the distance of the two means; else it would stretch the axis."""
    low, high = row["low"], row["high"]
    return isinstance(low, float) and isinstance(high, float) and high - low <= WIDEST


def place_rows(places: dict[str, tuple[BoundaryRow, ...]]) -> list[Row]:
    """Return the place of each category's over-refused prompts at each layer."""
    return [{**row, "series": name} for name, found in places.items() for row in boundary_rows(found)]
