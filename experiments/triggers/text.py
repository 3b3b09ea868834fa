"""Text of the trigger results: the verdict, its four rates, and the other findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.factors.text import factor_lines, moved_lines
from experiments.run.not_applicable import NotApplicable
from experiments.run.wording import verdict_sentence
from experiments.triggers.results import (
    NOTABLE,
    AttributedRequest,
    Attribution,
    Erasure,
    Patching,
    Projection,
    Transfer,
    TriggerFindings,
    TriggerResults,
    TriggerShareResult,
)

if TYPE_CHECKING:
    from rich.text import Text

SHOWN = 4  # examples on the terminal

MEMBER_LABELS = {
    "trigger_harmful": "harmful, with a trigger word",
    "trigger_benign": "benign, with a trigger word",
    "no_trigger_harmful": "harmful, without one",
    "no_trigger_benign": "benign, without one",
}
HEADINGS = {
    "projection": "Projection",
    "transfer": "Transfer",
    "patching": "Patching",
    "erasure": "Erasure",
    "attribution": "Attribution",
}


def print_triggers(directory: Path, results: TriggerResults) -> None:
    """Print the main results of stages/triggers.json."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title="Refused, over groups of minimal pairs (95 % intervals)", title_justify="left")
    for column in ("requests", "refused", "prompts"):
        table.add_column(column, overflow="fold")
    for name, rate in results.refused.items():
        table.add_row(MEMBER_LABELS[name], f"{rate:.1%}", str(rate.n))
    if results.refused:
        console.print(table)
    console.print("[bold]Word or intent?[/] " + escape(trigger_sentence(results)))
    for line in [*finding_lines(results), *factor_lines(results), *moved_lines(results)]:
        console.print(escape(line))
    for example in examples(results)[:SHOWN]:
        console.print(highlighted(example))
    console.print(f"All values and rates: {directory / 'stages' / 'triggers.json'}", soft_wrap=True, markup=False)


def examples(findings: TriggerFindings) -> tuple[AttributedRequest, ...]:
    """Return the example requests with the attribution of each word."""
    return findings.attribution.examples if isinstance(findings.attribution, Attribution) else ()


def highlighted(example: AttributedRequest) -> Text:
    """Return a refused request, the words that raise refusing highlighted with their score in nats."""
    from rich.text import Text

    text = Text(f"  {example.label}: ", style="dim")
    for word, score in zip(example.words, example.scores, strict=True):
        notable = score >= NOTABLE
        text.append(f"{word} [{score:+.1f}] " if notable else f"{word} ", style="bold red" if notable else "")
    return text


def finding_lines(findings: TriggerFindings) -> list[str]:
    """Return the lines of each finding; one that was not measured gives the reason."""
    lines: list[str] = []
    for name, heading in HEADINGS.items():
        match getattr(findings, name):
            case NotApplicable(reason=reason):
                lines.append(f"{heading}: not measured, {reason}.")
            case Projection() as projection:
                lines += _projection(projection)
            case Transfer() as transfer:
                lines.append(_transfer(transfer))
            case Patching() as patching:
                lines.append(_patching(patching))
            case Erasure() as erasure:
                lines += _erasure(erasure)
            case Attribution() as attribution:
                lines += _attribution(attribution)
    return lines


def _projection(projection: Projection) -> list[str]:
    lines = []
    for name, at in projection.directions.items():
        effects = "; ".join(
            f"{effect} {e.partial_eta_squared:.2f} [{e.low:.2f}, {e.high:.2f}], shift {e.shift:+.2f}"
            for effect, e in at.effects.items()
        )
        lines.append(
            f"Along the {name} direction (layer {at.layer}, {at.position}; {at.n_groups} held-out "
            f"groups), partial eta squared: {effects}."
        )
    return lines


def _transfer(transfer: Transfer) -> str:
    across = [transfer.probes[f"fitted {a}, tested {b}"] for a, b in (("without", "with"), ("with", "without"))]
    there, back = (
        f"{p.auroc:.2f} [{p.auroc_ci[0]:.2f}, {p.auroc_ci[1]:.2f}] (bag of words {p.bag_of_words:.2f})" for p in across
    )
    return (
        f"Intent probes fitted on requests without trigger words: AUROC {there} on requests with them; "
        f"the reverse: {back}."
    )


def _patching(patching: Patching) -> str:
    known = {at.layer: at.raised for at in patching.layers if np.isfinite(at.raised.low)}
    n = f"{patching.n} of the {patching.flipped} pairs flipped by the word, of {patching.pairs} that differ in it alone"
    if not known:
        return f"Patching: the share of the refusal's log-odds is not known at any layer ({n})."
    below = [layer for layer, share in known.items() if share.high < 0.5]
    steady = next((at for at in below if all(k in below for k in known if k >= at)), None)
    where = (
        "not surely less than half at any layer" if steady is None else f"surely less than half from layer {steady} on"
    )
    first, last = min(known), max(known)
    return (
        f"Patching: the residual of the trigger's tokens, copied into the same request without the word, carries "
        f"{known[first]:.0%} of the refusal's log-odds at layer {first}, {known[last]:.0%} at layer {last}, "
        f"{where} ({n}). It starts near 1 where the two spans have the same length."
    )


def _erasure(erasure: Erasure) -> list[str]:
    lines = []
    if auroc := erasure.auroc:
        lines.append(
            f"Erasure of the word at layer {erasure.layer} (LEACE): on held-out requests a probe reads it "
            f"with AUROC {auroc['before']:.2f} before and {auroc['after']:.2f} after."
        )
    ways = {f"at layer {erasure.layer}": erasure.one_layer, "at every stored layer": erasure.every_layer}
    for where, answers in ways.items():
        parts = [
            f"{what}: refused {decisions.before.estimate:.0%} before, {decisions.after.estimate:.0%} after (decisions "
            f"changed: {decisions.changed:.0%}, n = {decisions.n})"
            for what, decisions in (
                ("benign requests with a trigger word", answers.benign_with_trigger),
                ("harmful requests", answers.harmful),
            )
            if decisions is not None
        ]
        if parts:
            lines.append(f"With the word erased {where}: {'; '.join(parts)}.")
    return lines


def _attribution(attribution: Attribution) -> list[str]:
    return [
        f"Attribution: in {of.fired_by_trigger:.0%} of refused {label} requests with a trigger word, that word adds "
        f"most to the log-odds of refusing, and at least 1 nat (n = {of.n}; by chance {of.by_chance:.0%})."
        for label, of in attribution.by_label.items()
        if of is not None
    ]


def trigger_sentence(results: TriggerShareResult) -> str:
    """Return the verdict on word and intent, with the trigger share where there is one."""
    share = None
    if results.trigger_share is not None:
        share = results.share
    return verdict_sentence(results.verdict, [results.reason], share)
