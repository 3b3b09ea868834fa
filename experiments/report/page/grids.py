"""Heat maps over layers and positions, and the table of the permutation null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.dissociation.results import EffectRecord, NullRecord
from experiments.dissociation.text import BEHAVIOUR
from experiments.probing.results import GridRow
from experiments.report.markup import table
from experiments.report.page.heat import HeatCell, heat_map
from experiments.run.wording import p_text
from experiments.triggers.results import LocusEffect
from scoring.estimate import Estimate

PROBE = "logistic"


def probe_maps(rows: Sequence[GridRow]) -> str:
    """Return a heat map of the test AUROC of each contrast; tooltips give intervals and n."""
    mine = [row for row in rows if row.probe == PROBE]
    names = dict.fromkeys(row.contrast for row in mine)
    return _side_by_side([_probe_map(name, [row for row in mine if row.contrast == name]) for name in names])


def _probe_map(name: str, rows: Sequence[GridRow]) -> str:
    n = f"n = {rows[0].n_positive} + {rows[0].n_negative}"
    cells = {
        (str(row.layer), row.position): HeatCell(
            shade=2 * row.test_auroc - 1,  # 0.5 is chance
            text=f"{row.test_auroc:.2f}",
            tip=f"{name}, layer {row.layer}, {row.position}: test AUROC {row.test_auroc:.3f} "
            f"[{row.test_auroc_low:.3f}, {row.test_auroc_high:.3f}] (95 %), validation {row.validation_auroc:.3f}, "
            f"{row.n_positive} + {row.n_negative} prompts" + (", chosen on validation" if row.chosen else ""),
            chosen=row.chosen,
        )
        for row in rows
    }
    caption = f"{name}: AUROC of a logistic probe on test prompts, {n}; ★ chosen on validation"
    return heat_map(caption, "layer", _layers(rows), _positions(rows), cells)


def eta_maps(rows: Sequence[LocusEffect]) -> str:
    """Return heat maps of partial eta squared of trigger word, intent and interaction, for each direction."""
    kinds = dict.fromkeys((row.direction, row.effect) for row in rows)
    return _side_by_side(
        [_eta_map(*kind, [row for row in rows if (row.direction, row.effect) == kind]) for kind in kinds]
    )


def _eta_map(direction: str, effect: str, rows: Sequence[LocusEffect]) -> str:
    cells = {
        (str(row.layer), row.position): HeatCell(
            shade=row.partial_eta_squared,
            text=f"{row.partial_eta_squared:.2f}",
            tip=f"{effect} on the {direction} direction, layer {row.layer}, {row.position}: partial eta squared "
            f"{row.partial_eta_squared:.3f} [{row.low:.3f}, {row.high:.3f}] (95 %), p {p_text(row.p)}, "
            f"{row.n_groups} groups",
        )
        for row in rows
        if row.partial_eta_squared is not None
    }
    if not cells:
        return ""
    n = max(row.n_groups for row in rows)
    caption = f"{effect}: partial eta squared of the projection on the {direction} direction, {n} groups"
    return heat_map(caption, "layer", _layers(rows), _positions(rows), cells)


def matrix_maps(matrix: Mapping[str, Mapping[str, Estimate]]) -> str:
    """Return heat maps of the share of each behaviour, and of what baseline declines become, by intervention."""
    columns = list(next(iter(matrix.values()), {}))
    become = [name for name in columns if name.startswith(("refusals_", "abstentions_"))]
    caption = "Share of test prompts with each behaviour under each intervention (95 %); random directions are controls"
    shares = _matrix_map(matrix, [name for name in columns if name not in become], caption)
    return shares + _matrix_map(matrix, become, "What the plain model's refusals and abstentions become (95 %)")


def _matrix_map(matrix: Mapping[str, Mapping[str, Estimate]], columns: Sequence[str], caption: str) -> str:
    cells = {
        (row.replace("_", " "), _column(name, matrix)): HeatCell(
            shade=of.interval.estimate,
            text=f"{of:.0%}",
            tip=f"{row.replace('_', ' ')}: {name.replace('_', ' ')} {of:.1%} (95 %), n = {of.n}",
        )
        for row, shares in matrix.items()
        for name, of in shares.items()
        if of.n and name in columns
    }
    if not cells:
        return ""
    rows = [row.replace("_", " ") for row in matrix]
    return heat_map(caption, "intervention", rows, [_column(name, matrix) for name in columns], cells)


def _column(name: str, matrix: Mapping[str, Mapping[str, Estimate]]) -> str:
    return f"{name.replace('_', ' ')}, n\u00a0=\u00a0{next(iter(matrix.values()))[name].n}"


def null_table(null: Mapping[str, NullRecord], effects: Mapping[str, EffectRecord]) -> str:
    """Return the fall of the onset log-odds under each ablation, and under directions fitted on permuted labels."""
    rows = []
    for name, of in null.items():
        ablated, behaviour = name.split("_on_")
        effect = effects.get(f"ablate_{name}")
        onset = None if effect is None else effect.onset
        fall = _nats(of.onset_effect) + ("" if onset is None else f" [{_nats(onset.low)}, {_nats(onset.high)}]")
        n = "" if onset is None else str(onset.n)
        rows.append([f"{ablated}, on {BEHAVIOUR[behaviour]}", fall, _nats(of.null_95th_percentile), p_text(of.p), n,
                     str(of.n)])  # fmt: skip
    if not rows:
        return ""
    head = [
        "ablated",
        "fall of onset log-odds, nats (95 %)",
        "95th percentile of the null",
        "p",
        "n",
        "permutations",
    ]
    return table(head, rows, "Permutation null of the ablation effects; the next table gives corrected p-values")


def _nats(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"


def cosine_map(by_layer: Mapping[str, float | None], counted: str) -> str:
    """Return the cosine of the two write directions at every layer, as a heat map of one row.

    Args:
        counted: the n of each direction.
    """
    cells = {
        ("cosine", layer): HeatCell(abs(value), f"{value:+z.2f}", f"layer {layer}: cosine {value:+z.3f}")
        for layer, value in by_layer.items()
        if value is not None
    }
    if not cells:
        return ""
    caption = f"Cosine of the two write directions fitted at each layer, {counted}; colour is its absolute value"
    return heat_map(caption, "layer", ["cosine"], [layer for _, layer in cells], cells)


def _side_by_side(maps: Sequence[str]) -> str:
    return f'<div class="heats">{"".join(maps)}</div>'


def _layers(rows: Sequence[GridRow] | Sequence[LocusEffect]) -> list[str]:
    return [str(layer) for layer in sorted({row.layer for row in rows}, reverse=True)]


def _positions(rows: Sequence[GridRow] | Sequence[LocusEffect]) -> list[str]:
    return list(dict.fromkeys(row.position for row in rows))
