"""What probing says: chosen loci, AUROC over the grid, write directions and their geometry; terminal and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.charts.blocks import Block, Figures, figure
from experiments.charts.grids import by_layer, heat_map
from experiments.charts.specification import Chart, Row, fields, save
from experiments.probing.results import (
    KEPT,
    LEAST_RIGHT,
    LOST,
    BoundaryRow,
    Geometry,
    GridRow,
    Independence,
    ProbeResults,
    SiteRecord,
    UnspokenReads,
    WriteRecord,
)
from experiments.run.behaviour import KINDS, Kind
from experiments.run.config import WRITE_POSITION
from experiments.run.wording import p_text
from extract.capture_spec import THOUGHT
from extract.errors import UserError
from extract.table import Paragraph, Table, print_blocks
from probes.statistics.intervals import Estimate

PERMUTED = "p (labels permuted within pairs)"
NUMBERS = {"row": "position", "column": "layer", "estimate": "test AUROC", "low": "from", "high": "to", "n": "n"}
FILES = ["probes.parquet", "directions.safetensors", "stages/probe.json", "stages/geometry.json", "figures/grid_*.png"]


def print_probe(directory: Path, results: ProbeResults) -> None:
    """Print the ten best loci on validation prompts, the chosen loci, and the files written."""
    lines = []
    for name, site in results.sites.items():
        others = f"a bag of words reaches {site.bag_of_words_auroc:.3f}, length {site.length_auroc:.3f}"
        where = f"layer {site.layer}, {site.position}, test AUROC {site.shown}"
        lines.append(Paragraph(f"{where}; {others}; p {p_text(site.p_permutation)}", f"{name}:"))
    if "intent" not in results.sites:
        need = "left out; it needs 3 benign requests with a trigger word in every part except calibration"
        lines.append(Paragraph(need, "intent:"))
    lines += [Paragraph(_written(write), f"{kind} write direction:") for kind, write in results.writes.items()]
    reads = [unspoken_table(results.unspoken)]
    if said := unspoken_sentence(results.unspoken):
        lines.append(Paragraph(said, "reading without saying:"))
    print_blocks(
        [_best_loci(results), *reads, *lines, "Written: " + ", ".join(str(directory / name) for name in FILES)]
    )


def _best_loci(results: ProbeResults) -> Table:
    rows = [
        [
            row.contrast,
            str(row.layer),
            row.position,
            f"{row.validation_auroc:.3f}",
            f"{row.validation_d_prime:.1f}",
            row.shown,
            f"{row.n_positive} + {row.n_negative}",
        ]
        for row in results.best_loci
    ]
    title = "Where labels are read best: ranked on validation, AUROC on test (95 %)"
    return Table(title, ["contrast", "layer", "position", "validation", "d'", "test AUROC", "n"], rows)


def _written(write: WriteRecord) -> str:
    if write.locus is None:
        return f"none, {write.reason}; its cosines, independence and ablation are left out"
    short = "" if write.meets_selection_rules else "; no locus met the selection rules, this one is the nearest"
    return f"layer {write.locus.layer}, {write.locus.position}{short}{_screened(write)}"


def _screened(write: WriteRecord) -> str:
    screening = write.screening
    if screening is None or screening.bypass_correlation is None or screening.induce_correlation is None:
        return ""
    agree = f"{screening.bypass_correlation:.2f} (bypass) and {screening.induce_correlation:.2f} (induce)"
    best = f"of the {len(write.candidates)} candidates the best {KEPT} by first order are measured at a time"
    how = f"{best}, as in its null" if screening.used else "all candidates of its null are measured"
    return f"; first-order effects correlate {agree} with exact ones: {how}"


# -- the grid ----------------------------------------------------------------------------------------------------------


def grid_blocks(cells: Sequence[GridRow], sites: Mapping[str, SiteRecord]) -> list[Block]:
    """Return a heat map a contrast and the table of the chosen probes."""
    columns = NUMBERS | {"validation": "validation AUROC", "chosen": "chosen"}
    about = "AUROC of a logistic probe on test prompts; framed: chosen on validation"
    maps = [
        figure(f"grid_{name}", grid_figure(cells, name), f"{name}: {about}", grid_cells(cells, name), columns)
        for name in dict.fromkeys(row.contrast for row in cells)
    ]
    rows = [
        [
            kind,
            f"{site.site}, layer {site.layer}, {site.position}",
            site.shown,
            f"{site.bag_of_words_auroc:.3f}",
            p_text(site.p_permutation),
            str(site.n_positive + site.n_negative),
        ]
        for kind, site in sites.items()
    ]
    head = ["contrast", "chosen on validation", "test AUROC", "bag of words AUROC", PERMUTED, "n"]
    return [*([Figures(maps)] if maps else []), *([Table("", head, rows)] if rows else [])]


def along_thought(cells: Sequence[GridRow]) -> list[Block]:
    """Return the AUROC from the prompt's end through the thought to the answer; nothing where no thought was read."""
    if not (rows := _along_thought(cells)):
        return []
    caption = (
        "Where labels are read: at the prompt's end, along the thought, at the answer; the best layer of each token"
    )
    columns = {"series": "contrast", "layer": "token", "at": "layer", "estimate": "test AUROC", "low": "from"}
    return [figure("along_thought", _thought_chart(rows), caption, rows, columns | {"high": "to", "n": "n"})]


def _thought_chart(rows: Sequence[Row]) -> Chart:
    return by_layer(rows, y_title="test AUROC", reference=0.5, x_title="token")


def _along_thought(cells: Sequence[GridRow]) -> list[Row]:
    """Return the test AUROC of each contrast by token, at the layer that is best on validation prompts."""
    places = [p for p in (WRITE_POSITION, *THOUGHT) if any(row.position == p for row in cells)]
    best = dict[tuple[str, str], GridRow]()
    for row in cells:
        at = row.position, row.contrast
        if row.probe == "logistic" and (at not in best or row.validation_auroc > best[at].validation_auroc):
            best[at] = row
    return [
        {
            "layer": place,
            "series": contrast,
            "at": own.layer,
            **fields(Estimate(own.auroc, *own.auroc_ci, own.n_positive + own.n_negative)),
        }
        for contrast in dict.fromkeys(contrast for _, contrast in best)
        for place in places
        if len(places) > 1 and (own := best.get((place, contrast))) is not None
    ]


def draw_grids(rows: Sequence[GridRow], contrasts: Sequence[str], directory: Path) -> None:
    """Write figures/grid_CONTRAST.png and .svg of a run directory, and along_thought.png of a model that thinks."""
    if along := _along_thought(rows):
        save(_thought_chart(along), directory / "figures" / "along_thought.png")
    for name in contrasts:
        save(grid_figure(rows, name), directory / "figures" / f"grid_{name}.png")


def grid_figure(rows: Sequence[GridRow], contrast: str) -> Chart:
    """Draw the test AUROC of the logistic probe over layers and positions; UserError: there is no such contrast."""
    cells = grid_cells(rows, contrast)
    if not cells:
        there = ", ".join(dict.fromkeys(row.contrast for row in rows))
        raise UserError(f"there is no contrast {contrast!r}; there are {there}")
    title = f"{contrast}: test AUROC and 95 % interval, n = {cells[0]['n']}; framed: chosen on validation"
    lowest = min(row.auroc for row in rows if row.contrast == contrast)
    return heat_map(cells, title=title, columns="layer", lines="position", unit="AUROC", domain=(min(0.5, lowest), 1.0))


def grid_cells(rows: Sequence[GridRow], contrast: str) -> list[Row]:
    """Return the cells of a contrast's chart, layer by layer."""
    own = [row for row in rows if row.contrast == contrast and row.probe == "logistic"]
    return [
        {
            "column": str(row.layer),
            "row": row.position,
            **fields(row.test),
            "n": f"{row.n_positive} + {row.n_negative}",
            "chosen": row.chosen,
            "validation": row.validation_auroc,
        }
        for row in sorted(own, key=lambda row: row.layer)
    ]


# -- reading without saying --------------------------------------------------------------------------------------------


def unspoken_table(reads: UnspokenReads) -> Table:
    """Return what is read of uncertain prompts and how they are answered, a row a category; none if nothing is read."""
    line = any(one.abstained_under_line is not None for one in reads.categories)
    rows = [
        [
            one.category.replace("_", " "),
            f"{one.auroc:.2f}" if one.auroc.known else "too few",
            f"{one.abstained:.0%}",
            *([f"{one.abstained_under_line:.0%}" if one.abstained_under_line is not None else ""] if line else []),
            f"{one.silent:.0%}",
            str(one.silent.n),
        ]
        for one in reads.categories
    ]
    title = "Reading without saying: uncertain prompts against their twins, nested folds over all pairs (95 %)"
    head = ["uncertain prompts", "read (AUROC)", "abstained", *(["under the line"] if line else []), "silent", "n"]
    return Table(title, head, rows)


def unspoken_sentence(reads: UnspokenReads) -> str:
    """Return how many twins are known, and what silence is counted by; or why nothing was read."""
    if not reads.categories:
        return f"not read, {reads.reason}" if reads.reason else ""
    every, own = reads.categories[0], [one for one in reads.categories if one.auroc_own.known]
    alone = ", ".join(f"{one.category.replace('_', ' ')} {one.auroc_own:.2f}" for one in own)
    asked, right = every.known.n or 0, reads.lost.n or 0
    known = f"of {asked} twins with a known answer the model gets {right} right"
    if not right:
        return f"{known}, so there is nothing to hold a threshold against, and no prompt counts as silent"
    held = f"read against these, AUROC {every.auroc_known:.2f}; " if every.auroc_known.known else ""
    wide = ", too few for a lower limit of silence" if right < LEAST_RIGHT else ""
    return (
        f"{known}{wide}; {held}silent: answered firmly though read above the threshold that loses at most {LOST:.0%} "
        f"of other pairs' right answers (it loses {reads.lost:.0%} of those left out)"
        + (f"; by probes of one category alone: {alone}" if own else "")
    )


# -- geometry ----------------------------------------------------------------------------------------------------------


def geometry_blocks(geometry: Geometry, writes: Mapping[Kind, WriteRecord], planted: Sequence[str]) -> list[Block]:
    """Return the lines on the angle of the two write directions, its cosine by layer, and where over-refusal lies."""
    blocks: list[Block] = []
    if geometry.cosine is not None:
        blocks.append(f"Cosine between the two write directions: {geometry.cosine:z.2f}.")
    blocks += [*independence_lines(geometry.independence or {}), *planted]
    cosines = {int(layer): cosine for layer, cosine in geometry.cosine_by_layer.items() if cosine is not None}
    rows: list[Row] = [{"layer": at, "series": "cosine", "estimate": of, "low": None} for at, of in cosines.items()]
    if rows:
        counted = " and ".join(f"{kind} n = {write.n:,}" for kind, write in writes.items() if write.n)
        chart = by_layer(rows, y_title="cosine of the two write directions", number="+.2f")
        caption = f"Cosine of the two write directions fitted at each layer, {counted}"
        blocks.append(figure("cosine", chart, caption, rows, {"layer": "layer", "estimate": "cosine"}))
    if places := boundary_rows(geometry.over_refused_place, "place"):
        caption = (
            "Where over-refused prompts lie between the means of answered benign and harmful ones, at "
            f"{geometry.over_refused_place[0].position}; n = {places[0]['n']:,}, 95 % intervals"
        )
        columns = {"layer": "layer", "estimate": "place", "low": "from", "high": "to", "n": "n"}
        blocks.append(figure("boundary", boundary_chart(places), caption, places, columns))
    return blocks


def boundary_rows(places: Sequence[BoundaryRow], series: str) -> list[Row]:
    """Return the place of over-refused prompts at each layer where it is known."""
    rows = [{"layer": place.layer, "series": series, **fields(place)} for place in places]
    return [row for row in rows if row["estimate"] is not None and row["low"] is not None]


def boundary_chart(rows: Sequence[Row]) -> Chart:
    """Draw where over-refused prompts lie over layers; the dashed line is midway."""
    return by_layer(rows, y_title="0: answered benign, 1: harmful", reference=0.5)


def independence_lines(independence: Mapping[str, Independence]) -> list[str]:
    """Return one line for each ordered pair: how far ablating one write direction moves the stream along the other."""
    lines = []
    for ablated, watched in (KINDS, KINDS[::-1]):
        effect = independence.get(f"ablate_{ablated}_watch_{watched}")
        if effect is None or (moved := effect.projection).p_null is None:
            continue
        beyond = "more" if moved.p_null <= 0.05 else "no more"
        of_own = "" if moved.share is None else f"{moved.share:.0%} of its own move, "
        along, turned = moved.change.estimate, effect.cosine.change.estimate
        lines.append(
            f"Ablating the {ablated} direction moves the stream along the {watched} one by {along:.2f} of "
            f"the gap between declining and answering ({of_own}cosine by {turned:.2f}): {beyond} than "
            "permuted-label directions do "
            f"(95th percentile {moved.null_95th_percentile:.2f}, p = {p_text(moved.p_null, '.2f')})."
        )
    return lines
