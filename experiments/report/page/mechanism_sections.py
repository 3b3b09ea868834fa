"""The sections on mechanisms: one refusal or two, word or intent, probes, directions, context, uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from experiments.dissociation.results import Dissociation, EffectRecord, NullRecord, OpenedGates
from experiments.dissociation.text import BEHAVIOUR, dependence_lines, gate_sentence, tables
from experiments.factors.text import factor_lines, factor_rows, moved_lines
from experiments.probing.grid_figure import grid_cells, grid_figure
from experiments.probing.results import GridRow
from experiments.probing.text import independence_lines
from experiments.rank.text import rank_lines
from experiments.report.blocks import Block, Figure, Figures, Heading, Lines, Request, Requests, Table, figure
from experiments.report.figures import (
    boundary_chart,
    boundary_rows,
    cosine_chart,
    cosine_rows,
    matrix_cells,
    matrix_chart,
)
from experiments.report.results import RunResults
from experiments.run.wording import p_text
from experiments.triggers.figures import eta_cells, eta_maps, patching, patching_rows
from experiments.triggers.results import (
    NOTABLE,
    AttributedRequest,
    LocusEffect,
    Patching,
    TriggerFindings,
    TriggerResults,
)
from experiments.triggers.text import MEMBER_LABELS, examples, finding_lines
from experiments.uncertainty.reliability_figure import reliability_diagram, reliability_rows
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import HEADINGS, auroc_cell, measure_name, uncertainty_lines

MOST_CHARACTERS = 2000  # of a request in the list
LATER = 2  # tables of the dissociation from this one on are folds
CELLS = {"row": "position", "column": "layer", "value": "value", "low": "from", "high": "to", "n": "n"}
SHARES = {
    "row": "intervention",
    "column": "behaviour",
    "value": "share, %",
    "low": "from, %",
    "high": "to, %",
    "n": "n",
}


def matrix_blocks(found: Dissociation) -> list[Block]:
    """Return the matrix of interventions, the permutation null, the tables and the lines on dependence."""
    blocks: list[Block] = []
    for become in (False, True):
        if chart := matrix_chart(found.matrix, become=become):
            caption = (
                "What the plain model's refusals and abstentions become under each intervention (95 %)"
                if become
                else "Share of test prompts with each behaviour under each intervention (95 %); random "
                "directions are controls"
            )
            cells = matrix_cells(found.matrix, become=become)
            blocks.append(figure("matrix_become" if become else "matrix", chart, caption, cells, SHARES))
    return [*blocks, *_null_table(found.null or {}, found.effects), *dissociation_blocks(found)]


def _null_table(null: Mapping[str, NullRecord], effects: Mapping[str, EffectRecord]) -> list[Block]:
    """Return the fall of the onset log-odds under each ablation, and under directions fitted on permuted labels."""
    rows = []
    for name, of in null.items():
        ablated, behaviour = name.split("_on_")
        effect = effects.get(f"ablate_{name}")
        onset = None if effect is None else effect.onset
        fall = _nats(of.onset_effect) + ("" if onset is None else f" [{_nats(onset.low)}, {_nats(onset.high)}]")
        n = "" if onset is None else str(onset.n)
        rows.append(
            [f"{ablated}, on {BEHAVIOUR[behaviour]}", fall, _nats(of.null_95th_percentile), p_text(of.p), n, str(of.n)]
        )
    head = [
        "ablated",
        "fall of onset log-odds, nats (95 %)",
        "95th percentile of the null, nats",
        "p",
        "n",
        "permutations",
    ]
    caption = "Permutation null of the ablation effects; the next table gives corrected p-values"
    return [Table(head, rows, caption)] if rows else []


def _nats(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"


def dissociation_blocks(found: Dissociation) -> list[Block]:
    """Return the tables that have rows, the later ones closed, and the lines on rank and dependence."""
    shown = [Table(head, rows, title, fold=i >= LATER) for i, (title, head, rows) in enumerate(tables(found)) if rows]
    lines = [*rank_lines(found.rank), *dependence_lines(found)]
    return [*shown, *([Lines(lines)] if lines else [])]


def trigger_blocks(results: TriggerResults, eta: Sequence[LocusEffect]) -> list[Block]:
    """Return the refused shares, the findings with their charts, and requests with the words that fired."""
    rows = [[MEMBER_LABELS.get(name, name), f"{of:.1%}", str(of.n)] for name, of in results.refused.items() if of.n]
    blocks: list[Block] = (
        [Table(["requests of all parts", "refused (95 %)", "n"], rows, "Refused requests by trigger word and intent")]
        if rows
        else []
    )
    blocks += finding_blocks(results)
    for direction in dict.fromkeys(row.direction for row in eta):
        blocks += [Heading(f"Along the {direction} direction"), Figures(_eta(eta, direction))]
    if isinstance(results.patching, Patching):
        blocks.append(
            figure(
                "patching",
                patching(results.patching),
                "Share of the onset log-odds of refusing carried by the trigger's own tokens, by layer; 95 % intervals",
                patching_rows(results.patching),
                {"layer": "layer", "series": "way", "value": "share, %", "low": "from, %", "high": "to, %", "n": "n"},
            )
        )
    return blocks


def _eta(rows: Sequence[LocusEffect], direction: str) -> list[Figure]:
    own = [row for row in rows if row.direction == direction]
    return [
        figure(
            f"eta_{direction}_{effect}",
            chart,
            f"{effect}: partial eta squared of the projection on the {direction} direction, "
            f"{max(row.n_groups for row in own)} groups",
            eta_cells([row for row in own if row.effect == effect]),
            CELLS,
        )
        for effect, chart in eta_maps(own, direction).items()
    ]


def finding_blocks(findings: TriggerFindings) -> list[Block]:
    """Return the findings, one line each, and refused requests with the words that cause the refusal marked."""
    lines = finding_lines(findings)
    blocks: list[Block] = [Lines(lines)] if lines else []
    if requests := examples(findings):
        head = (
            "Attribution of single requests: the fall of the onset log-odds of refusing, in nats, when a word is left "
            f"out (shown from {NOTABLE:g} on). Where none is marked, no single word causes the refusal."
        )
        blocks += [Lines([head]), Requests([marked_request(request) for request in requests])]
    return blocks


def marked_request(request: AttributedRequest) -> Request:
    """Return a request of at most `MOST_CHARACTERS` with the scores of its notable words."""
    n = sum(end <= MOST_CHARACTERS for end in accumulate(len(word) + 1 for word in request.words)) or 1
    words = [
        (word, score if score >= NOTABLE else None)
        for word, score in zip(request.words[:n], request.scores[:n], strict=True)
    ]
    return Request(request.label, words, len(request.words) - n)


def grid_blocks(cells: Sequence[GridRow], results: RunResults) -> list[Block]:
    """Return a heat map a contrast and the table of the chosen probes."""
    columns = CELLS | {"value": "test AUROC", "validation": "validation AUROC", "chosen": "chosen"}
    maps = [
        figure(
            f"grid_{name}",
            grid_figure(cells, name),
            f"{name}: AUROC of a logistic probe on test prompts; framed: chosen on validation",
            grid_cells(cells, name),
            columns,
        )
        for name in dict.fromkeys(row.contrast for row in cells)
    ]
    rows = [
        [
            kind,
            f"{s.site}, layer {s.layer}, {s.position}",
            s.shown,
            f"{s.bag_of_words_auroc:.3f}",
            p_text(s.p_permutation),
            str(s.n_positive + s.n_negative),
        ]
        for kind, s in results.sites.items()
    ]
    head = [
        "contrast",
        "chosen on validation",
        "test AUROC",
        "bag of words AUROC",
        "p (labels permuted within pairs)",
        "n",
    ]
    return [*([Figures(maps)] if maps else []), *([Table(head, rows)] if rows else [])]


def geometry_blocks(results: RunResults) -> list[Block]:
    """Return the lines on the angle of the two write directions, and its cosine by layer."""
    geometry, lines = results.geometry, []
    if geometry.cosine is not None:
        lines.append(f"Cosine between the two write directions: {geometry.cosine:z.2f}.")
    lines += independence_lines(geometry.independence or {})
    if (planted := results.planted) is not None:
        for kind, recovered in (("normative", planted.normative_cosine), ("epistemic", planted.epistemic_cosine)):
            if recovered is not None:
                lines.append(f"Recovery of the planted {kind} direction: |cos| {recovered:.2f}.")
    blocks: list[Block] = [Lines(lines)] if lines else []
    if rows := cosine_rows(geometry.cosine_by_layer):
        counted = " and ".join(f"{kind} n = {write.n:,}" for kind, write in results.writes.items() if write.n)
        caption = f"Cosine of the two write directions fitted at each layer, {counted}"
        chart = cosine_chart(geometry.cosine_by_layer)
        blocks.append(figure("cosine", chart, caption, rows, {"layer": "layer", "value": "cosine"}))
    if rows := boundary_rows(geometry.over_refused_place):
        caption = (
            f"Where over-refused prompts lie between the means of answered benign and harmful ones, at "
            f"{geometry.over_refused_place[0].position}; n = {rows[0]['n']:,}, 95 % intervals"
        )
        columns = {"layer": "layer", "value": "place", "low": "from", "high": "to", "n": "n"}
        blocks.append(figure("boundary", boundary_chart(geometry.over_refused_place), caption, rows, columns))
    return blocks


def context_blocks(results: TriggerResults) -> list[Block]:
    """Return what the context of requests does to refusing; nothing where no request has any."""
    last_turn = results.last_turn_alone
    measured = any(factor.applicable for factor in results.factors.values()) or (last_turn and last_turn.applicable)
    if not measured:
        return []
    rows = factor_rows(results)
    head = ["context", "label", "refused with it", "refused without", "evidence (* changes refusing)"]
    return [Lines([*factor_lines(results), *moved_lines(results)]), *([Table(head, rows)] if rows else [])]


def uncertainty_blocks(gates: OpenedGates | None, result: UncertaintyResult | None) -> list[Block]:
    """Return the sentence on opened gates and, where answers were sampled, AUROCs, findings and the figure.

    Args:
        gates: completions with a gate opened; None for runs made before this was measured.
    """
    opened = gates is not None and (gates.normative.applicable or gates.epistemic.applicable)
    blocks: list[Block] = (
        [Heading("Could it have answered? (declined test prompts)"), Lines([gate_sentence(gates)])]
        if opened and gates
        else []
    )
    if result is None:
        return blocks
    blocks.append(Heading("Do sampled answers agree?"))
    if not result.applicable:
        return [*blocks, Lines([f"Not applicable: {result.reason}."])]
    of = result.populations
    columns = [f"{heading} ({of[name].wrong_or_unknowable} + {of[name].right})" for name, heading in HEADINGS.items()]
    rows = [
        [measure_name(measure), *(auroc_cell(of[name].measures[measure]) for name in HEADINGS)]
        for measure in of["all"].measures
    ]
    return [
        *blocks,
        Table(["AUROC: wrong or unknowable against right", *columns], rows),
        Lines(uncertainty_lines(result)),
        figure(
            "reliability",
            reliability_diagram(result.reliability),
            "Share of correct completions by the share of samples that agree; n beside each point; lines: 95 %",
            reliability_rows(result.reliability),
            {"series": "questions", "x": "confidence, %", "y": "right, %", "low": "from, %", "high": "to, %", "n": "n"},
        ),
    ]
