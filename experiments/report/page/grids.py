"""Layer by position: what can be read where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.dissociation.text import BEHAVIOUR
from experiments.report.page.heat import Cell, heat_map
from experiments.report.page.markup import table

PROBE = "logistic"


def probe_maps(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return a heat map of test AUROC for each contrast; its whole story is told where a cell is pointed at."""
    mine = [cell for cell in cells if cell["probe"] == PROBE]
    names = dict.fromkeys(c["contrast"] for c in mine)
    return _beside([_probe_map(name, [c for c in mine if c["contrast"] == name]) for name in names])


def _probe_map(name: str, cells: Sequence[Mapping[str, Any]]) -> str:
    n = f"n = {cells[0]['n_positive']} + {cells[0]['n_negative']}"
    found = {
        (str(c["layer"]), c["position"]): Cell(
            shade=2 * c["test_auroc"] - 1,  # from a half, which is chance
            shown=f"{c['test_auroc']:.2f}",
            told=f"{name}, layer {c['layer']}, {c['position']}: test AUROC {c['test_auroc']:.3f} "
            f"[{c['test_auroc_low']:.3f}, {c['test_auroc_high']:.3f}] (95 %), validation {c['validation_auroc']:.3f}, "
            f"{c['n_positive']} + {c['n_negative']} prompts" + (", chosen on validation" if c["chosen"] else ""),
            chosen=bool(c["chosen"]),
        )
        for c in cells
    }
    caption = f"{name}: AUROC of a logistic probe on test prompts, {n}; ★ chosen on validation"
    return heat_map(caption, "layer", _layers(cells), _positions(cells), found)


def eta_maps(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return heat maps of partial eta squared of word, intent and both, for each direction."""
    kinds = dict.fromkeys((row["direction"], row["effect"]) for row in rows)
    return _beside([_eta_map(*kind, [r for r in rows if (r["direction"], r["effect"]) == kind]) for kind in kinds])


def _eta_map(direction: str, effect: str, rows: Sequence[Mapping[str, Any]]) -> str:
    found = {
        (str(row["layer"]), row["position"]): Cell(
            shade=row["partial_eta_squared"],
            shown=f"{row['partial_eta_squared']:.2f}",
            told=f"{effect} on the {direction} direction, layer {row['layer']}, {row['position']}: partial eta squared "
            f"{row['partial_eta_squared']:.3f} [{row['low']:.3f}, {row['high']:.3f}] (95 %), p {row['p']:.3f}, "
            f"{row['n_groups']} groups",
        )
        for row in rows
        if row["partial_eta_squared"] is not None
    }
    if not found:
        return ""
    n = max(row["n_groups"] for row in rows)
    caption = f"{effect}: partial eta squared of the projection on the {direction} direction, {n} groups"
    return heat_map(caption, "layer", _layers(rows), _positions(rows), found)


def matrix_map(matrix: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what each behaviour's share becomes under each intervention."""
    columns = [name for name in next(iter(matrix.values()), {})]
    found = {
        (row.replace("_", " "), _column(name, matrix)): Cell(
            shade=of["estimate"],
            shown=f"{of['estimate']:.0%} [{of['low']:.0%}, {of['high']:.0%}]",
            told=f"{row.replace('_', ' ')}: {name.replace('_', ' ')} {of['estimate']:.1%} "
            f"[{of['low']:.1%}, {of['high']:.1%}] (95 %), n = {of['n']}",
        )
        for row, cells in matrix.items()
        for name, of in cells.items()
        if of["n"]
    }
    if not found:
        return ""
    rows = [row.replace("_", " ") for row in matrix]
    caption = "Share of test prompts that do so, under each intervention (95 %); random directions are controls"
    return heat_map(caption, "intervention", rows, [_column(name, matrix) for name in columns], found)


def _column(name: str, matrix: Mapping[str, Mapping[str, Any]]) -> str:
    return f"{name.replace('_', ' ')}, n = {next(iter(matrix.values()))[name]['n']}"


def null_table(null: Mapping[str, Mapping[str, Any]], effects: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what ablating takes off the onset log-odds, beside what directions fitted to permuted labels take off."""
    rows = []
    for name, of in null.items():
        ablated, behaviour = name.split("_on_")
        onset = (effects.get(f"ablate_{name}") or {}).get("onset") or {}
        interval = f" [{onset['low']:.1f}, {onset['high']:.1f}]" if onset else ""
        fall = f"{of['onset_effect']:.1f}{interval}"
        rows.append([f"{ablated}, on {BEHAVIOUR[behaviour]}", fall, f"{of['null_95th_percentile']:.1f}",
                     f"{of['p']:.3f}", str(onset.get("n", "")), str(of["n"])])  # fmt: skip
    if not rows:
        return ""
    head = [
        "ablated",
        "onset log-odds fall by, nats (95 %)",
        "permuted labels: 95th percentile",
        "p",
        "n",
        "permutations",
    ]
    return table(head, rows, "Against the permuted-label null; p is corrected below")


def cosine_map(by_layer: Mapping[str, float], counted: str) -> str:
    """Return the cosine of the two write directions at every layer as one row.

    Args:
        counted: the n of each direction.
    """
    cells = {
        ("cosine", layer): Cell(abs(value), f"{value:+.2f}", f"layer {layer}: cosine {value:+.3f}")
        for layer, value in by_layer.items()
        if value is not None
    }
    if not cells:
        return ""
    caption = f"Cosine of the two write directions fitted at each layer, {counted}; colour is its size"
    return heat_map(caption, "layer", ["cosine"], [layer for _, layer in cells], cells)


def _beside(maps: Sequence[str]) -> str:
    return f'<div class="heats">{"".join(maps)}</div>'


def _layers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(layer) for layer in sorted({row["layer"] for row in rows}, reverse=True)]


def _positions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["position"] for row in rows))
