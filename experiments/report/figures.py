"""Figures of a run: joint rates, the intervention matrix, prompts projected on the two write directions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.report.results import Rates
from probes.direction import Direction
from scoring.estimate import Estimate

# Okabe & Ito's colour-blind-safe palette
COLOUR = {"benign": "#0072B2", "harmful": "#D55E00", "uncertain": "#009E73", "dual_use": "#E69F00"}
MARKER = {"answer": "o", "refuse": "X", "abstain": "^"}
RATE_NAMES = {
    "over_refusal": "over_refusal\n(benign declined)",
    "missed_harm": "missed_harm\n(harmful answered)",
    "overconfidence": "overconfidence\n(uncertain answered)",
    "uncertain_refused": "uncertain_refused\n(uncertain refused)",
}
COLUMN_NAMES = {
    "refusal_on_harmful": "harmful:\nrefused",
    "abstention_on_uncertain": "uncertain:\nabstained",
    "answering_on_benign": "benign:\nanswered",
    "refusal_on_answered_benign": "answered benign:\nnow refused",
    "abstention_on_answered_benign": "answered benign:\nnow abstained",
}


def rates(found: Rates) -> Figure:
    """Draw the joint rates before and after the dials, with 95 % intervals."""
    figure = Figure(figsize=(7.5, 3.4))
    axes = figure.subplots()
    bars = ((-0.19, "without dials", found.before, "#999999"), (0.19, "with the dials", found.after, "#0072B2"))
    for offset, when, record, colour in bars:
        for x, name in enumerate(RATE_NAMES):
            rate = record.of(name)
            if rate.estimate is None:
                continue
            value, low, high = rate.interval.estimate, rate.interval.low, rate.interval.high
            label = when if x == 0 else None
            axes.bar(x + offset, 100 * value, 0.36, color=colour, label=label)
            axes.errorbar(x + offset, 100 * value, [[100 * (value - low)], [100 * (high - value)]],
                          color="black", capsize=3, lw=1)  # fmt: skip
    names = [f"{text}\nn = {found.before.of(name).n}" for name, text in RATE_NAMES.items()]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(ylabel="% of test prompts", ylim=(0, 105))
    axes.legend(frameon=False, fontsize=8)
    return figure


def matrix(table: dict[str, dict[str, Estimate]]) -> Figure:
    """Draw the share of test prompts with each behaviour (columns) under each intervention (rows)."""
    names, columns = list(table), list(COLUMN_NAMES)
    shares = [[table[row][c] for c in columns] for row in names]
    values = np.array([[share.interval.estimate if share.n else np.nan for share in row] for row in shares])
    figure = Figure(figsize=(8.4, 0.9 + 0.48 * len(names)))
    axes = figure.subplots()
    axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    for (r, c), value in np.ndenumerate(values):
        cell = table[names[r]][columns[c]]
        text = "n = 0" if not cell.n else f"{value:.0%}\n[{cell.interval.low:.0%}, {cell.interval.high:.0%}]"
        axes.text(c, r, text, ha="center", va="center", fontsize=7, color="white" if value < 0.6 else "black")
    shown = [f"{COLUMN_NAMES[c]}\nn = {table['none'][c].n}" for c in columns]
    axes.set_xticks(range(len(columns)), shown, fontsize=8)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize=8)
    axes.set_title("share of test prompts with each behaviour, by intervention; 95 % intervals", fontsize=9)
    return figure


def scatter(
    streams: dict[str, Float[np.ndarray, "n_prompts d_model"]],
    directions: dict[str, Direction],
    labels: list[str],
    actions: list[str | None],
) -> Figure:
    """Draw every prompt by its projections on the two write directions.

    Args:
        streams: by direction name, the activations at the locus of that direction.
        labels, actions: of each prompt; an action other than refuse and abstain is drawn as an answer.
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
