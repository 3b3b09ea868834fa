"""Figures of a run: joint rates, the intervention matrix, cosines by layer, prompts on the two write directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from experiments.charts.heat_map import heat_map
from experiments.charts.layers import by_layer
from experiments.charts.rates import rates_before_after
from experiments.charts.scatter import scatter, shape_of
from experiments.charts.specification import LABEL_COLOURS, Chart, Row
from experiments.dials.results import Certificate
from experiments.probing.geometry_results import BoundaryRow
from experiments.report.results import Rates
from probes.direction import Direction
from probes.statistics.intervals import Estimate
from scoring.wording import RATE_MEANING

Matrix = Mapping[str, Mapping[str, Estimate]]
MATRIX_WIDTH = 118  # pixels a column: behaviours have long names
BECOME = ("refusals_", "abstentions_")  # columns on what baseline declines become


def rates_chart(found: Rates, certified: Certificate | None, *, dials: bool, title: str = "") -> Chart:
    """Draw the joint rates without and with the dials, with 95 % intervals and the limits asked for."""
    return rates_before_after(rates_rows(found, certified, dials=dials), title)


def rates_rows(found: Rates, certified: Certificate | None, *, dials: bool) -> list[Row]:
    """Return each rate without the dials and, where the run has some, with them."""
    rows: list[Row] = []
    states = [("without dials", found.before), *([("with the dials", found.after)] if dials else [])]
    for name in RATE_MEANING:
        limit = None if certified is None or name not in certified.risks else certified.risks[name].limit
        for when, record in states:
            rate = record.of(name)
            rows.append(
                {
                    "rate": name,
                    "when": when,
                    "value": rate.estimate,
                    "low": rate.low,
                    "high": rate.high,
                    "n": rate.n,
                    "limit": limit if dials else None,
                }
            )
    return rows


def matrix_chart(matrix: Matrix, *, become: bool = False) -> Chart | None:
    """Draw the share of test prompts with each behaviour (columns) under each intervention (rows).

    Args:
        become: the columns on what the plain model's refusals and abstentions become, in place of the others.

    Returns:
        None where no such share was measured.
    """
    cells = matrix_cells(matrix, become=become)
    title = (
        "What the plain model's refusals and abstentions become"
        if become
        else ("Share of test prompts with each behaviour under each intervention")
    )
    return (
        heat_map(
            cells,
            title=title,
            columns="",
            lines="",
            unit="share",
            domain=(0.0, 1.0),
            number=".0%",
            column_width=MATRIX_WIDTH,
        )
        if cells
        else None
    )


def matrix_cells(matrix: Matrix, *, become: bool = False) -> list[Row]:
    """Return the cells of a matrix chart that have prompts."""
    return [
        {
            "column": _column(name, matrix),
            "row": row.replace("_", " "),
            "value": of.estimate,
            "low": of.low,
            "high": of.high,
            "n": of.n,
        }
        for row, shares in matrix.items()
        for name, of in shares.items()
        if of.n and name.startswith(BECOME) == become
    ]


def _column(name: str, matrix: Matrix) -> str:
    what, _, among = name.replace("_", " ").partition(" on ")
    return f"{what}, {f'on {among}, ' if among else ''}n = {next(iter(matrix.values()))[name].n}"


def cosine_rows(cosines: Mapping[str, float | None]) -> list[Row]:
    """Return the cosine of the two write directions at each layer where both are known."""
    return [
        {"layer": int(layer), "series": "cosine", "value": value, "low": None, "high": None, "n": None}
        for layer, value in cosines.items()
        if value is not None
    ]


def cosine_chart(cosines: Mapping[str, float | None]) -> Chart:
    """Draw the cosine of the two write directions over layers."""
    return by_layer(cosine_rows(cosines), y_title="cosine of the two write directions", number="+.2f")


def boundary_rows(found: Sequence[BoundaryRow]) -> list[Row]:
    """Return the place of over-refused prompts at each layer where it is known."""
    return [
        {"layer": row.layer, "series": "place", "value": row.estimate, "low": row.low, "high": row.high, "n": row.n}
        for row in found
        if row.within(-np.inf, np.inf)
    ]


def boundary_chart(found: Sequence[BoundaryRow]) -> Chart:
    """Draw where over-refused prompts lie over layers; the dashed line is midway."""
    return by_layer(boundary_rows(found), y_title="0: answered benign, 1: harmful", reference=0.5)


def scatter_chart(layers: tuple[int, int], labels: Sequence[str], rows: Sequence[Row] | None = None) -> Chart:
    """Draw every prompt by its projections on the two write directions.

    Args:
        layers: of the normative and the epistemic write direction.
        rows: the prompts; None where the page's script fills them in.
    """
    shown = [label for label in LABEL_COLOURS if label in labels]
    return scatter(
        rows,
        labels=shown,
        x_title=f"normative write direction, layer {layers[0]} (residual-stream units)",
        y_title=f"epistemic write direction, layer {layers[1]} (residual-stream units)",
    )


def scatter_rows(
    streams: Mapping[str, Float[np.ndarray, "n_prompts d_model"]],
    directions: Mapping[str, Direction],
    labels: Sequence[str],
    actions: Sequence[str | None],
) -> list[Row]:
    """Return one row a prompt.

    Args:
        streams: by direction name, the activations at the locus of that direction.
    """
    x, y = (directions[name].project(streams[name]) for name in ("normative_write", "epistemic_write"))
    return [
        {"i": i, "x": float(x[i]), "y": float(y[i]), "label": label, "action": shape_of(action)}
        for i, (label, action) in enumerate(zip(labels, actions, strict=True))
    ]
