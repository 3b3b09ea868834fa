"""The probe grid as a chart: test AUROC over layers and positions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.charts.heat_map import heat_map
from experiments.charts.specification import Chart, Row, save
from experiments.probing.results import GridRow
from extract.errors import UserError


def draw_grids(rows: Sequence[GridRow], contrasts: Sequence[str], directory: Path) -> None:
    """Write figures/grid_CONTRAST.png and .svg of a run directory."""
    for name in contrasts:
        save(grid_figure(rows, name), directory / "figures" / f"grid_{name}.png")


def grid_figure(rows: Sequence[GridRow], contrast: str) -> Chart:
    """Draw the test AUROC of the logistic probe over layers and positions, with its 95 % interval.

    Raises:
        UserError: there is no such contrast.
    """
    cells = grid_cells(rows, contrast)
    if not cells:
        there = ", ".join(dict.fromkeys(row.contrast for row in rows))
        raise UserError(f"there is no contrast {contrast!r}; there are {there}")
    title = f"{contrast}: test AUROC and 95 % interval, n = {cells[0]['n']}; framed: chosen on validation"
    lowest = min(row.auroc for row in rows if row.contrast == contrast)
    return heat_map(cells, title=title, columns="layer", lines="position", unit="AUROC", domain=(min(0.5, lowest), 1.0))


def grid_cells(rows: Sequence[GridRow], contrast: str) -> list[Row]:
    """Return the cells of a contrast's chart, layer by layer."""
    mine = [row for row in rows if row.contrast == contrast and row.probe == "logistic"]
    return [
        {
            "column": str(row.layer),
            "row": row.position,
            "value": row.auroc,
            "low": row.auroc_ci[0],
            "high": row.auroc_ci[1],
            "n": f"{row.n_positive} + {row.n_negative}",
            "chosen": row.chosen,
            "validation": row.validation_auroc,
        }
        for row in sorted(mine, key=lambda row: row.layer)
    ]
