"""The probe grid as a figure: test AUROC over layers and positions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.probing.results import GridRow
from experiments.run.charts import save


def draw_grids(rows: Sequence[GridRow], contrasts: Sequence[str], directory: Path) -> None:
    """Write figures/grid_CONTRAST.png and .svg of a run directory."""
    for name in contrasts:
        save(grid_figure(rows, name), directory / "figures" / f"grid_{name}.png")


def grid_figure(rows: Sequence[GridRow], contrast: str) -> Figure:
    """Draw the test AUROC of the logistic probe over layers and positions, its 95 % interval in small print."""
    mine = [row for row in rows if row.contrast == contrast and row.probe == "logistic"]
    layers = sorted({row.layer for row in mine})
    positions = list(dict.fromkeys(row.position for row in mine))
    at = {(positions.index(row.position), layers.index(row.layer)): row for row in mine}
    values = np.full((len(positions), len(layers)), np.nan)
    for place, row in at.items():
        values[place] = row.test_auroc
    figure = Figure(figsize=(1.6 + 0.72 * len(layers), 1.2 + 0.5 * len(positions)))
    axes = figure.subplots()
    image = axes.imshow(values, vmin=0.5, vmax=1.0, cmap="viridis", aspect="auto")
    for (p, layer), value in np.ndenumerate(values):
        colour = "white" if value < 0.85 else "black"
        if (p, layer) not in at:
            axes.text(layer, p, "absent", ha="center", va="center", fontsize=7)
            continue
        row = at[p, layer]
        interval = f"{row.test_auroc_low:.2f} to {row.test_auroc_high:.2f}"
        axes.text(layer, p - 0.12, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axes.text(layer, p + 0.27, interval, ha="center", va="center", fontsize=5, color=colour)
        if row.chosen:
            axes.add_patch(Rectangle((layer - 0.5, p - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
    axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
    axes.set_yticks(range(len(positions)), positions)
    n = mine[0].n_positive, mine[0].n_negative
    title = f"{contrast}: test AUROC and 95 % interval, n = {n[0]} + {n[1]}; framed: chosen on validation"
    axes.set_title(title, wrap=True)
    axes.set(xlabel="layer")
    figure.colorbar(image, ax=axes, label="AUROC")
    return figure
