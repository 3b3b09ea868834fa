"""Saves matplotlib figures as PNG and SVG in one style."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and, under the same name, as SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for axes in figure.axes:
        axes.tick_params(labelsize=8)
        axes.title.set_fontsize(9)
        axes.xaxis.label.set_fontsize(9)
        axes.yaxis.label.set_fontsize(9)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    figure.savefig(path.with_suffix(".svg"), bbox_inches="tight")
