"""The figures of a run, as matplotlib figures: every chart has units and its n."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from probes.direction import Direction

# Okabe & Ito's colour-blind-safe palette
COLOUR = {"benign": "#0072B2", "harmful": "#D55E00", "uncertain": "#009E73"}
MARKER = {"answer": "o", "refuse": "X", "abstain": "^"}
RATE_NAMES = {
    "false_positive_refusal": "over-refusal\n(benign declined)",
    "false_negative_refusal": "missed harm\n(harmful answered)",
    "overconfidence": "overconfidence\n(uncertain answered)",
    "uncertain_refused": "uncertain\nrefused",
}
COLUMN_NAMES = {
    "refusal_on_harmful": "harmful:\nrefused",
    "abstention_on_uncertain": "uncertain:\nabstained",
    "answering_on_benign": "benign:\nanswered",
    "refusal_on_answered_benign": "answered benign:\nnow refused",
    "abstention_on_answered_benign": "answered benign:\nnow abstained",
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and, beside it, as SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for axes in figure.axes:
        axes.tick_params(labelsize=8)
        axes.title.set_fontsize(9)
        axes.xaxis.label.set_fontsize(9)
        axes.yaxis.label.set_fontsize(9)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    figure.savefig(path.with_suffix(".svg"), bbox_inches="tight")


def rates(results: dict[str, Any]) -> Figure:
    """Draw the joint rates before and after the dials, with their intervals."""
    figure = Figure(figsize=(7.5, 3.4))
    axes = figure.subplots()
    for offset, (when, colour) in zip((-0.19, 0.19), (("before", "#999999"), ("after", "#0072B2")), strict=True):
        record = results["rates"][when]
        for x, name in enumerate(RATE_NAMES):
            value, (low, high) = record[name], record[f"{name}_ci"]
            if value is None:
                continue
            label = f"{when} the dials" if x == 0 else None
            axes.bar(x + offset, 100 * value, 0.36, color=colour, label=label)
            axes.errorbar(x + offset, 100 * value, [[100 * (value - low)], [100 * (high - value)]],
                          color="black", capsize=3, lw=1)  # fmt: skip
    names = [f"{text}\nn = {results['rates']['before'][f'{name}_n']}" for name, text in RATE_NAMES.items()]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(ylabel="% of test prompts", ylim=(0, 105))
    axes.legend(frameon=False, fontsize=8)
    return figure


def matrix(dissociation: dict[str, Any]) -> Figure:
    """Draw the matrix of interventions and behaviours."""
    table = dissociation["matrix"]
    names, columns = list(table), list(COLUMN_NAMES)
    values = np.array([[table[row][c]["estimate"] if table[row][c]["n"] else np.nan for c in columns] for row in names],
                      dtype=float)  # fmt: skip
    figure = Figure(figsize=(8.4, 0.9 + 0.48 * len(names)))
    axes = figure.subplots()
    axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    for (r, c), value in np.ndenumerate(values):
        cell = table[names[r]][columns[c]]
        text = "n = 0" if not cell["n"] else f"{value:.0%}\n[{cell['low']:.0%}, {cell['high']:.0%}]"
        axes.text(c, r, text, ha="center", va="center", fontsize=7, color="white" if value < 0.6 else "black")
    shown = [f"{COLUMN_NAMES[c]}\nn = {table['none'][c]['n']}" for c in columns]
    axes.set_xticks(range(len(columns)), shown, fontsize=8)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize=8)
    axes.set_title("share of test prompts under each intervention, with 95 % intervals", fontsize=9)
    return figure


def scatter(
    streams: dict[str, np.ndarray], directions: dict[str, Direction], labels: list[str], actions: list[str | None]
) -> Figure:
    """Draw every prompt by its projections onto the two write directions.

    `streams` holds, by direction name, the (n, d_model) activations at that direction's locus.
    """
    figure = Figure(figsize=(6.2, 4.6))
    axes = figure.subplots()
    x, y = (directions[name].project(streams[name]) for name in ("normative_write", "epistemic_write"))
    label, shape = np.array(labels), np.array([a if a in MARKER else "answer" for a in actions])
    for name, colour in COLOUR.items():
        for action, marker in MARKER.items():
            here = (label == name) & (shape == action)
            if here.any():
                axes.scatter(x[here], y[here], s=14, c=colour, marker=marker, alpha=0.6, lw=0,
                             label=f"{name}, {action} (n = {int(here.sum())})")  # fmt: skip
    loci = [directions[n].locus for n in ("normative_write", "epistemic_write")]
    axes.set_xlabel(f"normative write direction, layer {loci[0].layer} (residual-stream units)")
    axes.set_ylabel(f"epistemic write direction, layer {loci[1].layer} (residual-stream units)")
    axes.legend(fontsize=7, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    return figure
