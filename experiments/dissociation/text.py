"""Text and tables of the dissociation, for the terminal and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.dissociation.results import Dissociation, OpenedGate, OpenedGates, OpenedLabel
from experiments.rank.text import rank_lines, rank_tables
from experiments.run.wording import verdict_sentence
from probes.statistics.intervals import Estimate

if TYPE_CHECKING:
    from rich.table import Table

BEHAVIOUR = {"normative": "refusing harmful", "epistemic": "abstaining on uncertain"}
TURNED = {"normative": "refusals_abstained", "epistemic": "abstentions_refused"}  # columns of the matrix
DECLINED = {"normative": "Refused prompts", "epistemic": "Prompts abstained from"}


def print_dissociation(directory: Path, found: Dissociation) -> None:
    """Print the verdict, the effects, the other variants, the side effects and the file that holds the rest."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(
        "[bold]One refusal or two?[/] " + escape(verdict_sentence(found.verdict, found.reasons)),
        soft_wrap=not console.is_terminal,
    )
    for title, head, rows in tables(found):
        if rows:
            console.print(_table(title, head, rows))
    for line in [*rank_lines(found.rank), *dependence_lines(found)]:
        console.print(escape(line), soft_wrap=not console.is_terminal)
    console.print(f"Written: {directory / 'stages' / 'dissociate.json'}", soft_wrap=not console.is_terminal)


def tables(found: Dissociation) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the title, header and rows of each table, for the terminal and the report."""
    return [
        (
            "Baseline decliners that stop declining (95 %)",
            ["ablated", "behaviour", "stop", "change kind", "n", "onset log-odds fall by", "p, permuted labels (Holm)"],
            _effects(found),
        ),
        (
            "Answered benign prompts that decline when a direction is added",
            ["added", "refuse", "abstain", "n"],
            _added(found),
        ),
        (
            "Other variants of ablation: decliners that stop, benign prompts still answered",
            ["ablated", "form", "layers", "tokens", "refusing", "abstaining", "benign"],
            _variants(found),
        ),
        *rank_tables(found.rank),
        (
            "Side effects",
            [
                "ablated",
                "benign answered",
                "known facts right",
                "KL, nats per token",
                "plain text, nats per token (uniform guess)",
            ],
            _side_effects(found),
        ),
        ("Harmful prompts still refused when wrapped", ["ablated", "wrap", "refused", "n"], _wraps(found)),
        (
            "Sample sizes that would settle open questions",
            ["quantity", "question", "unit", "now", "needed (power 80 %)"],
            _power(found),
        ),
    ]


def without_variants(found: Dissociation) -> Dissociation:
    """Return the result without the other variants of ablation: the effects are those of the verdict's."""
    return found.model_copy(update={"variants": ()})


def strength_sentence(found: Dissociation) -> str:
    """Return how much more each direction's ablation stops its own way of declining than the other's does."""
    contrasts = [
        (own, found.contrasts.get(f"own_minus_other_on_{kind}"))
        for own, kind in (("refusals", "normative"), ("abstentions", "epistemic"))
    ]
    parts = [
        f"{100 * c.estimate:.0f} points more of the {own} [{100 * c.low:.0f}, {100 * c.high:.0f}]"
        for own, c in contrasts
        if c is not None and c.known
    ]
    return f"Ablating its own direction stops {' and '.join(parts)} than ablating the other." if parts else ""


def dependence_lines(found: Dissociation) -> list[str]:
    """Return a line that says whether the two write directions are independent; the verdict does not use this."""
    of = found.dependence
    if of is None:
        return []
    low, high = of.cosine_ci
    line = f"Not part of the verdict: the two write directions have cosine {of.cosine:.2f} [{low:.2f}, {high:.2f}]"
    changed = [name.removeprefix("ablate_").split("_watch_") for name in of.moved_under_ablation]
    for ablated, watched in changed:
        line += (
            f"; ablating the {ablated} one changes the stream along the {watched} one more than permuted-label "
            "directions do"
        )
    if of.dependent:
        return [line + "; so they are not independent."]
    if not of.ablation_measured:
        return [line + "; whether ablating one changes the stream along the other was not measured."]
    return [line + "; no change of the stream along one by ablating the other is shown."]


def gate_sentence(gates: OpenedGates) -> str:
    """Return one line: how many declined test prompts are answered when the gate that declined them is opened."""
    return f"{_gate('normative', gates.normative)} {_gate('epistemic', gates.epistemic)}"


def _gate(kind: str, gate: OpenedGate) -> str:
    if not gate.applicable:
        return f"{DECLINED[kind]}: not applicable, {gate.reason}."
    parts = [_label(label, of) for label, of in gate.labels.items() if of.answered.n]
    return f"{DECLINED[kind]}, with the {kind} direction ablated: {'; '.join(parts)}."


def _label(label: str, of: OpenedLabel) -> str:
    other, right = of.answered_other_gate_open, of.right
    text = f"{of.answered:.0%} of {of.answered.n} {label} prompts are answered"
    if other is not None and other.known:
        text += f" ({other.estimate:.0%} with the other ablated)"
    return text + (f", {right:.0%} of the {right.n} with a known answer correctly" if right.n else "")


# -- tables ------------------------------------------------------------------------------------------------------------


def _share(of: Estimate) -> str:
    return "none" if not of.known else f"{of:.0%}"


def _effects(found: Dissociation) -> list[list[str]]:
    rows = []
    for name, effect in found.effects.items():
        ablated, behaviour = name.removeprefix("ablate_").split("_on_")
        fall = "not tested" if effect.onset is None else f"{effect.onset:.1f}"
        p = "not tested" if effect.p_corrected is None else f"{effect.p_corrected:.3f}"
        turned = found.matrix.get(f"ablate_{ablated}", {}).get(TURNED[behaviour])
        rows.append([ablated, BEHAVIOUR[behaviour], _share(effect), _percent(turned), str(effect.n), fall, p])
    return rows


def _added(found: Dissociation) -> list[list[str]]:
    rows = [(kind, found.matrix[f"add_{kind}"]) for kind in BEHAVIOUR if f"add_{kind}" in found.matrix]
    refuse, abstain = "refusal_on_answered_benign", "abstention_on_answered_benign"
    return [[kind, _share(row[refuse]), _share(row[abstain]), str(row[refuse].n)] for kind, row in rows]


def _variants(found: Dissociation) -> list[list[str]]:
    return [
        [
            row.ablated,
            *row.variant.split("/"),
            *(_percent(row.stopped.get(kind)) for kind in BEHAVIOUR),
            _percent(row.benign_answered),
        ]
        for row in found.variants
    ]


def _percent(of: Estimate | None) -> str:
    return "" if of is None or not of.known else f"{of.estimate:.0%}"


def _side_effects(found: Dissociation) -> list[list[str]]:
    return [
        [
            name.removeprefix("ablate_"),
            _share(each.benign_answering),
            _share(each.known_facts),
            _nats(each.kl),
            _nats(each.plain_text) + (f" ({each.plain_text.uniform:.1f})" if each.plain_text.known else ""),
        ]
        for name, each in found.side_effects.items()
    ]


def _nats(of: Estimate) -> str:
    return "none" if not of.known else f"{of.estimate:.3f}"


def _wraps(found: Dissociation) -> list[list[str]]:
    return [
        [name.removeprefix("ablate_"), wrap, _share(each.refused), str(each.refused.n)]
        for name, effects in found.side_effects.items()
        for wrap, each in effects.wraps.items()
    ]


def _power(found: Dissociation) -> list[list[str]]:
    return [
        [
            need.quantity.replace("_", " "),
            need.question,
            need.unit,
            f"{need.now:.0f}",
            need.obstacle if need.needed is None else str(need.needed),
        ]
        for need in found.power
    ]


def _table(title: str, head: list[str], rows: list[list[str]]) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    for column in head:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
