"""The outcome of `refusal dissociate` on the terminal: the verdict, what each ablation stops, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.run.wording import Verdict, dependence_lines, verdict_sentence

BEHAVIOUR = {"normative": "refusing harmful", "epistemic": "abstaining on uncertain"}


def print_dissociation(directory: Path, record: Mapping[str, Any]) -> None:
    """Print the verdict, the effects, the other ways of ablating, side effects and the file that holds the rest."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    verdict = verdict_sentence(Verdict.model_validate(record))
    console.print("[bold]One refusal or two?[/] " + escape(verdict), soft_wrap=True)
    for title, head, rows in tables(record):
        if rows:
            console.print(_table(title, head, rows))
    for line in dependence_lines(record):
        console.print(escape(line), soft_wrap=True)
    console.print(f"Written: {directory / 'stages' / 'dissociate.json'}", soft_wrap=True)


def tables(record: Mapping[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the title, head and rows of each table, for the terminal and the report alike."""
    return [
        ("Baseline decliners that stop declining (95 %)",
         ["ablated", "behaviour", "stop", "n", "onset log-odds fall by", "p against permuted labels (Holm)"],
         _effects(record)),
        ("Answered benign prompts that an added direction makes decline",
         ["added", "refuse", "abstain", "n"], _added(record)),
        ("Other ways of ablating: decliners that stop, benign prompts still answered",
         ["ablated", "form", "layers", "tokens", "refusing", "abstaining", "benign"], _variants(record)),
        ("Side effects",
         ["ablated", "benign answered", "known facts right", "KL, nats a token",
          "plain text, nats a token (knowing nothing)"],
         _side_effects(record)),
        ("Harmful prompts still refused when wrapped", ["ablated", "wrap", "refused", "n"], _wraps(record)),
        ("What more prompts would settle", ["cell", "question", "of", "now", "needed (power 80 %)"], _power(record)),
    ]  # fmt: skip


def share(cell: Mapping[str, Any] | None) -> str:
    """Return a share with its interval."""
    if cell is None or cell["estimate"] is None:
        return "none"
    return f"{cell['estimate']:.0%} [{cell['low']:.0%}, {cell['high']:.0%}]"


def _effects(record: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, effect in record["effects"].items():
        ablated, behaviour = name.removeprefix("ablate_").split("_on_")
        onset = effect.get("onset")
        fall = "not tested" if onset is None else f"{onset['estimate']:.1f} [{onset['low']:.1f}, {onset['high']:.1f}]"
        p = "not tested" if effect["p_corrected"] is None else f"{effect['p_corrected']:.3f}"
        rows.append([ablated, BEHAVIOUR[behaviour], share(effect), str(effect["n"]), fall, p])
    return rows


def _added(record: Mapping[str, Any]) -> list[list[str]]:
    matrix = record["matrix"]
    cells = [(kind, matrix[f"add_{kind}"]) for kind in BEHAVIOUR if f"add_{kind}" in matrix]
    refuse, abstain = "refusal_on_answered_benign", "abstention_on_answered_benign"
    return [[kind, share(row[refuse]), share(row[abstain]), str(row[refuse]["n"])] for kind, row in cells]


def _variants(record: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for row in record["variants"]:
        stops = (row["stopped"].get(kind) for kind in BEHAVIOUR)
        rows.append([row["ablated"], *row["variant"].split("/"), *(_percent(s) for s in stops),
                     _percent(row["benign_answered"])])  # fmt: skip
    return rows


def _percent(cell: Mapping[str, Any] | None) -> str:
    return "" if cell is None else f"{cell['estimate']:.0%}"


def _side_effects(record: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name.removeprefix("ablate_"), share(e["benign_answering"]), share(e["known_facts"]), _number(e["kl"]),
         _number(e["plain_text"])]
        for name, e in record["side_effects"].items()
    ]  # fmt: skip


def _number(cell: Mapping[str, Any]) -> str:
    value = cell["estimate"]
    nothing = f" ({cell['uniform']:.1f})" if "uniform" in cell else ""
    return "none" if value is None else f"{value:.3f}{nothing}"


def _wraps(record: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name.removeprefix("ablate_"), wrap, share(found["refused"]), str(found["refused"]["n"])]
        for name, effects in record["side_effects"].items()
        for wrap, found in effects["wraps"].items()
    ]


def _power(record: Mapping[str, Any]) -> list[list[str]]:
    return [[row["cell"].replace("_", " "), row["question"], row["unit"], f"{row['now']:.0f}",
             row["obstacle"] if row["needed"] is None else str(row["needed"])] for row in record["power"]]  # fmt: skip


def _table(title: str, head: list[str], rows: list[list[str]]) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    for column in head:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table
