"""Figures of trigger word and intent: partial eta squared over layers and positions, patching share by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt
import numpy as np

from experiments.charts.heat_map import heat_map
from experiments.charts.layers import by_layer
from experiments.charts.specification import Chart, Row, save
from experiments.run.not_applicable import NotApplicable
from experiments.triggers.results import LocusEffect, Patching

WAYS = {"raised": "trigger's residual patched in", "lowered": "trigger's residual patched out"}


def draw(directory: Path, rows: Sequence[LocusEffect], patched: Patching | NotApplicable | None) -> dict[str, Path]:
    """Write the figures that have data into a run's figures/, and delete those of an earlier run."""
    for path in (directory / "figures").glob("trigger_*"):
        path.unlink()
    drawn = figures(rows, patched)
    paths = {name: directory / "figures" / f"{name}.png" for name in drawn}
    for name, chart in drawn.items():
        save(chart, paths[name])
    return paths


def figures(rows: Sequence[LocusEffect], patched: Patching | NotApplicable | None) -> dict[str, Chart]:
    """Return the charts that have data, by the names of their files."""
    drawn: dict[str, Chart] = {}
    for direction in dict.fromkeys(row.direction for row in rows):
        maps = eta_maps(rows, direction)
        drawn[f"trigger_eta_{direction}"] = alt.vconcat(*maps.values()).resolve_scale(color="shared")
    if isinstance(patched, Patching):
        drawn["trigger_patching"] = patching(patched)
    return drawn


def eta_maps(rows: Sequence[LocusEffect], direction: str) -> Mapping[str, Chart]:
    """Return a heat map an effect, of its partial eta squared along one direction over layers and positions."""
    own = [row for row in rows if row.direction == direction]
    return {effect: _eta_map(own, effect) for effect in dict.fromkeys(row.effect for row in own)}


def eta_cells(rows: Sequence[LocusEffect]) -> list[Row]:
    """Return the cells of the heat maps, layer by layer."""
    return [
        {
            "column": str(row.layer),
            "row": row.position,
            "value": row.partial_eta_squared,
            "low": row.low,
            "high": row.high,
            "n": f"{row.n_groups} groups",
            "direction": row.direction,
            "effect": row.effect,
        }
        for row in sorted(rows, key=lambda row: row.layer)
    ]


def _eta_map(own: Sequence[LocusEffect], effect: str) -> Chart:
    title = f"{effect}, along the {own[0].direction} direction (n = {own[0].n_groups} groups)"
    cells = eta_cells([row for row in own if row.effect == effect])
    return heat_map(cells, title=title, columns="layer", lines="position", unit="partial eta²", domain=(0.0, 1.0))


def patching(record: Patching) -> Chart:
    """Draw the share of the refusal's onset log-odds that the trigger's tokens carry, by layer, in both directions."""
    title = f"n = {record.n} pairs of {record.n_groups} groups; 95 % intervals"
    return by_layer(patching_rows(record), y_title="share of onset log-odds", title=title, number=".0%")


def patching_rows(record: Patching) -> list[Row]:
    """Return the points of the chart, one a layer and way of patching that is known."""
    return [
        {
            "layer": at.layer,
            "series": label,
            "value": share.estimate,
            "low": share.low,
            "high": share.high,
            "n": record.n,
        }
        for way, label in WAYS.items()
        for at in record.layers
        if (share := at.raised if way == "raised" else at.lowered).within(-np.inf, np.inf)
    ]
