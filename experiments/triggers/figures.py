"""Figures of trigger word and intent: partial eta squared over layers and positions, patching share by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.run.charts import save
from experiments.run.not_applicable import NotApplicable
from experiments.triggers.results import LocusEffect, Patching

EFFECTS = ("trigger", "intent", "interaction")
WAYS = {
    "raised": ("trigger's residual patched in", "#D55E00"),
    "lowered": ("trigger's residual patched out", "#0072B2"),
}


def draw(directory: Path, rows: Sequence[LocusEffect], patched: Patching | NotApplicable | None) -> dict[str, Path]:
    """Write the figures that have data into a run's figures/, and delete those of an earlier run."""
    for path in (directory / "figures").glob("trigger_*"):
        path.unlink()
    drawn = {f"trigger_eta_{name}": eta(rows, name) for name in dict.fromkeys(row.direction for row in rows)}
    if isinstance(patched, Patching):
        drawn["trigger_patching"] = patching(patched)
    paths = {name: directory / "figures" / f"{name}.png" for name in drawn}
    for name, figure in drawn.items():
        save(figure, paths[name])
    return paths


def eta(rows: Sequence[LocusEffect], direction: str) -> Figure:
    """Draw the three effects on one direction's projection over layers and positions, intervals below the values."""
    own = [row for row in rows if row.direction == direction]
    layers = sorted({row.layer for row in own})
    positions = list(dict.fromkeys(row.position for row in own))
    figure = Figure(figsize=(2 + 0.62 * len(layers), 3 * (0.7 + 0.42 * len(positions))), layout="constrained")
    panels = figure.subplots(len(EFFECTS), 1, sharex=True)
    for axes, effect in zip(panels, EFFECTS, strict=True):
        values = np.full((len(positions), len(layers)), np.nan)
        for row in (row for row in own if row.effect == effect):
            p, layer = positions.index(row.position), layers.index(row.layer)
            values[p, layer] = row.partial_eta_squared
            colour = "white" if row.partial_eta_squared < 0.6 else "black"
            axes.text(layer, p - 0.12, f"{row.partial_eta_squared:.2f}", ha="center", va="center", fontsize=7,
                      color=colour)  # fmt: skip
            axes.text(layer, p + 0.27, f"{row.low:.2f} to {row.high:.2f}", ha="center", va="center", fontsize=4.5,
                      color=colour)  # fmt: skip
        image = axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        axes.set_yticks(range(len(positions)), positions)
        axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
        axes.set_title(f"{effect}, along the {direction} direction (n = {own[0].n_groups} groups)")
    panels[-1].set(xlabel="layer")
    figure.colorbar(image, ax=list(panels), label="partial eta squared")
    return figure


def patching(record: Patching) -> Figure:
    """Draw the share of the refusal's onset log-odds that the trigger's tokens carry, by layer, in both directions."""
    figure = Figure(figsize=(6.4, 3.2))
    axes = figure.subplots()
    layers = [share.layer for share in record.layers]
    for offset, (way, (label, colour)) in zip((-0.06, 0.06), WAYS.items(), strict=True):
        shares = [(share.layer, getattr(share, way)) for share in record.layers]
        known = [(layer + offset, share.interval) for layer, share in shares if share.low is not None]
        at = [x for x, _ in known]
        value, low, high = (np.array([getattr(i, key) for _, i in known]) for key in ("estimate", "low", "high"))
        axes.errorbar(at, value, [value - low, high - value], color=colour, marker="o", ms=4, capsize=2, lw=1.2,
                      label=label)  # fmt: skip
    axes.axhline(0, color="#888888", lw=0.6)
    axes.set(xlabel="layer (residual stream after the block)", ylabel="share of onset log-odds")
    axes.set_xticks(layers)
    axes.set_title(f"n = {record.n} pairs of {record.n_groups} groups; 95 % intervals")
    axes.legend(frameon=False, fontsize=8)
    return figure
