"""What trigger word and intent say: the verdict, its four rates, the other findings and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import isfinite
from pathlib import Path

import altair as alt

from experiments.charts.blocks import Block, Figures, Heading, figure
from experiments.charts.grids import by_layer, heat_map
from experiments.charts.specification import Chart, Row, fields, save
from experiments.factors.text import factor_lines, moved_lines
from experiments.run.wording import verdict_sentence
from experiments.triggers.results import (
    NOTABLE,
    AttributedRequest,
    IntentTransfer,
    LocusEffect,
    Patching,
    Projection,
    TriggerAttribution,
    TriggerErasure,
    TriggerFindings,
    TriggerResults,
    TriggerShareResult,
)
from extract.record import NotApplicable
from extract.table import Paragraph, Request, Table, print_blocks

SHOWN = 4  # examples on the terminal
MOST_CHARACTERS = 2000  # of a request in the list
MEMBER_LABELS = {
    "trigger_harmful": "harmful, with a trigger word",
    "trigger_benign": "benign, with a trigger word",
    "no_trigger_harmful": "harmful, without one",
    "no_trigger_benign": "benign, without one",
}
ERASED_ON = {"benign": "benign requests with a trigger word", "harmful": "harmful requests"}
FINDINGS = ("projection", "transfer", "patching", "erasure", "attribution")
WAYS = {"raised": "trigger's residual patched in", "lowered": "trigger's residual patched out"}
ETA = dict(row="position", column="layer", estimate="value", low="from", high="to", n="n")
PATCHED = dict(layer="layer", series="way", estimate="share, %", low="from, %", high="to, %", n="n")


def print_triggers(directory: Path, results: TriggerResults) -> None:
    """Print the main results of stages/triggers.json."""
    sentence = Paragraph(trigger_sentence(results), "Word or intent?")
    lines = [*finding_lines(results), *factor_lines(results), *moved_lines(results)]
    written = f"All values and rates: {directory / 'stages' / 'triggers.json'}"
    print_blocks([refused_table(results), sentence, *lines, *examples(results)[:SHOWN], written])


def trigger_blocks(results: TriggerResults, eta: Sequence[LocusEffect]) -> list[Block]:
    """Return the section: refused shares, findings with their charts (`eta`: effects at every locus), requests."""
    refused = refused_table(results)
    blocks: list[Block] = [*([refused] if refused.rows else []), *finding_blocks(results)]
    for direction in dict.fromkeys(row.direction for row in eta):
        maps = []
        for effect, (chart, own) in eta_maps(eta, direction).items():
            what = f"partial eta squared of the projection on the {direction} direction"
            caption = f"{effect}: {what}, {max(row.n_groups for row in own)} groups"
            maps.append(figure(f"eta_{direction}_{effect}", chart, caption, _eta_cells(own), ETA))
        blocks += [Heading(f"Along the {direction} direction"), Figures(maps)]
    if isinstance(patched := results.patching, Patching):
        caption = (
            "Share of the onset log-odds of refusing carried by the trigger's own tokens, by layer; 95 % intervals"
        )
        blocks.append(figure("patching", _patching_chart(patched), caption, _patching_rows(patched), PATCHED))
    return blocks


def finding_blocks(findings: TriggerFindings) -> list[Block]:
    """Return the findings, one line each, and refused requests with the words that cause the refusal marked."""
    requests = examples(findings)
    head = (
        "Attribution of single requests: the fall of the onset log-odds of refusing, in nats, when a word is left "
        f"out (shown from {NOTABLE:g} on). Where none is marked, no single word causes the refusal."
    )
    return [*finding_lines(findings), *([head] if requests else []), *requests]


def refused_table(results: TriggerShareResult) -> Table:
    """Return the share of requests refused, by trigger word and intent."""
    rows = [
        [MEMBER_LABELS.get(name, name), f"{rate:.1%}", str(rate.n)] for name, rate in results.refused.items() if rate.n
    ]
    title = "Refused requests of all parts, by trigger word and intent, over groups of minimal pairs"
    return Table(title, ["requests", "refused (95 %)", "n"], rows)


def examples(findings: TriggerFindings) -> list[Request]:
    """Return the example requests with their notable words marked."""
    attributed = findings.attribution
    examples = attributed.examples if isinstance(attributed, TriggerAttribution) else ()
    return [marked_request(request) for request in examples]


def marked_request(request: AttributedRequest) -> Request:
    """Return a request of at most `MOST_CHARACTERS` with the scores of its notable words."""
    n = sum(end <= MOST_CHARACTERS for end in accumulate(len(word) + 1 for word in request.words)) or 1
    scored = zip(request.words[:n], request.scores[:n], strict=True)
    words = [(word, score if score >= NOTABLE else None) for word, score in scored]
    return Request(request.label, words, len(request.words) - n)


def finding_lines(findings: TriggerFindings) -> list[str]:
    """Return the lines of each finding; one that was not measured gives the reason."""
    lines: list[str] = []
    for name in FINDINGS:
        match getattr(findings, name):
            case NotApplicable(reason=reason):
                lines.append(f"{name.capitalize()}: not measured, {reason}.")
            case Projection(directions=directions):
                for direction, at in directions.items():
                    effects = "; ".join(
                        f"{effect} {e.partial_eta_squared:.2f}, shift {e.shift:+.2f}"
                        for effect, e in at.effects.items()
                    )
                    lines.append(
                        f"Along the {direction} direction (layer {at.layer}, {at.position}; {at.n_groups} held-out "
                        f"groups), partial eta squared: {effects}."
                    )
            case IntentTransfer(probes=probes):
                there, back = (
                    f"{p.auroc:.2f} [{p.auroc_ci[0]:.2f}, {p.auroc_ci[1]:.2f}] (bag of words {p.bag_of_words:.2f})"
                    for p in (probes["fitted without, tested with"], probes["fitted with, tested without"])
                )
                lines.append(
                    f"Intent probes fitted on requests without trigger words: AUROC {there} on requests with them; "
                    f"the reverse: {back}."
                )
            case Patching() as patched:
                lines.append(_patching(patched))
            case TriggerErasure() as erasure:
                lines += _erasure(erasure)
            case TriggerAttribution(by_label=by_label):
                lines += [
                    f"Attribution: in {of.fired_by_trigger:.0%} of refused {label} requests with a trigger word, that "
                    f"word adds most to the log-odds of refusing, and at least 1 nat (n = {of.n}; by chance "
                    f"{of.by_chance:.0%})."
                    for label, of in by_label.items()
                    if of is not None
                ]
    return lines


def _patching(patched: Patching) -> str:
    known = {at.layer: at.raised for at in patched.layers if isfinite(at.raised.low)}
    n = f"{patched.n} of the {patched.flipped} pairs flipped by the word, of {patched.pairs} that differ in it alone"
    if not known:
        return f"Patching: the share of the refusal's log-odds is not known at any layer ({n})."
    not_below = [layer for layer, share in known.items() if not share.high < 0.5]
    steady = next((layer for layer in known if layer > max(not_below, default=-1)), None)
    where = (
        "not surely less than half at any layer" if steady is None else f"surely less than half from layer {steady} on"
    )
    first, last = min(known), max(known)
    return (
        f"Patching: the residual of the trigger's tokens, copied into the same request without the word, carries "
        f"{known[first]:.0%} of the refusal's log-odds at layer {first}, {known[last]:.0%} at layer {last}, "
        f"{where} ({n}). It starts near 1 where the two spans have the same length."
    )


def _erasure(erasure: TriggerErasure) -> list[str]:
    lines = []
    if auroc := erasure.auroc:
        lines.append(
            f"Erasure of the word at layer {erasure.layer} (LEACE): on held-out requests a probe reads it "
            f"with AUROC {auroc['before']:.2f} before and {auroc['after']:.2f} after."
        )
    ways = {f"at layer {erasure.layer}": erasure.one_layer, "at every stored layer": erasure.every_layer}
    for where, answers in ways.items():
        parts = [
            f"{what}: refused {of.before.estimate:.0%} before, {of.after.estimate:.0%} after (decisions changed: "
            f"{of.changed:.0%}, n = {of.n})"
            for label, what in ERASED_ON.items()
            if (of := answers.get(label)) is not None
        ]
        lines += [f"With the word erased {where}: {'; '.join(parts)}."] if parts else []
    return lines


def trigger_sentence(results: TriggerShareResult) -> str:
    """Return the verdict on word and intent, with the trigger share where there is one."""
    share = None if results.trigger_share is None else results.share
    return verdict_sentence(results.verdict, [results.reason], share)


# -- charts ------------------------------------------------------------------------------------------------------------


def draw_triggers(directory: Path, rows: Sequence[LocusEffect], patched: Patching | NotApplicable | None) -> None:
    """Write the figures that have data into a run's figures/, and delete those of an earlier run."""
    figures = directory / "figures"
    for path in figures.glob("trigger_*"):
        path.unlink()
    for direction in dict.fromkeys(row.direction for row in rows):
        maps = (chart for chart, _ in eta_maps(rows, direction).values())
        save(alt.vconcat(*maps).resolve_scale(color="shared"), figures / f"trigger_eta_{direction}.png")
    if isinstance(patched, Patching):
        save(_patching_chart(patched), figures / "trigger_patching.png")


def eta_maps(rows: Sequence[LocusEffect], direction: str) -> dict[str, tuple[Chart, list[LocusEffect]]]:
    """Return a heat map an effect, of its partial eta squared along a direction by layer and position, and its rows."""
    maps = {}
    for effect in dict.fromkeys(row.effect for row in rows if row.direction == direction):
        own = [row for row in rows if (row.direction, row.effect) == (direction, effect)]
        title = f"{effect}, along the {direction} direction (n = {own[0].n_groups} groups)"
        axes = partial(heat_map, columns="layer", lines="position", unit="partial eta²", domain=(0.0, 1.0))
        maps[effect] = axes(_eta_cells(own), title=title), own
    return maps


def _eta_cells(rows: Sequence[LocusEffect]) -> list[Row]:
    """Return the cells of the heat maps, layer by layer."""
    return [
        {
            "column": str(row.layer),
            "row": row.position,
            **fields(row.partial_eta_squared),
            "n": f"{row.n_groups} groups",
        }
        for row in sorted(rows, key=lambda row: row.layer)
    ]


def _patching_chart(record: Patching) -> Chart:
    title = f"n = {record.n} pairs of {record.n_groups} groups; 95 % intervals"
    return by_layer(_patching_rows(record), y_title="share of onset log-odds", title=title, number=".0%")


def _patching_rows(record: Patching) -> list[Row]:
    """Return the points of the chart, one a layer and way of patching that is known."""
    rows = [
        {"layer": at.layer, "series": label, **fields(getattr(at, way)), "n": record.n}
        for way, label in WAYS.items()
        for at in record.layers
    ]
    return [row for row in rows if row["low"] is not None]
