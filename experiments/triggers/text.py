"""What `refusal triggers` prints: the verdict, the four rates behind it, and what stands beside the request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.run.wording import Verdict, factor_lines, verdict_sentence
from experiments.triggers.findings import finding_lines, moved_lines

if TYPE_CHECKING:
    from rich.text import Text

NOTABLE = 1.0  # nat from which a word is set off, as `attribution.LEAST`, whose module loads torch
SHOWN = 4  # examples on the terminal

CELLS = {"trigger_harmful": "harmful, with a trigger word", "trigger_benign": "benign, with a trigger word",
         "no_trigger_harmful": "harmful, without one", "no_trigger_benign": "benign, without one"}  # fmt: skip


def print_triggers(directory: Path, record: dict[str, Any]) -> None:
    """Print stages/triggers.json for people; what it holds beyond that is in the file."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    cells = Table(title="Refused, over groups of minimal pairs (95 % intervals)", title_justify="left")
    for column in ("requests", "refused", "prompts"):
        cells.add_column(column)
    for name, rate in record["refused"].items():
        cells.add_row(CELLS[name], shown(rate), str(rate["n"]))
    if record["refused"]:
        console.print(cells)
    console.print("[bold]Word or intent?[/] " + escape(verdict_sentence(Verdict.model_validate(record))))
    for line in [*finding_lines(record), *factor_lines(record), *moved_lines(record)]:
        console.print(escape(line))
    for example in record.get("attribution", {}).get("examples", [])[:SHOWN]:
        console.print(marked(example))
    console.print(f"Every value and rate: {directory / 'stages' / 'triggers.json'}", soft_wrap=True, markup=False)


def marked(example: Mapping[str, Any]) -> Text:
    """Return a refused request with the words that speak for refusing set off, each with its score in nats."""
    from rich.text import Text

    text = Text(f"  {example['label']}: ", style="dim")
    for word, score in zip(example["words"], example["scores"], strict=True):
        fires = score >= NOTABLE
        text.append(f"{word} [{score:+.1f}] " if fires else f"{word} ", style="bold red" if fires else "")
    return text


def shown(rate: Mapping[str, float]) -> str:
    """Return a rate with its interval."""
    return f"{rate['estimate']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]"


def factor_rows(triggers: dict[str, Any]) -> list[list[str]]:
    """Return a table's rows: each value of each factor that was compared, by label, then what removing changes."""
    rows = []
    for name, record in triggers.get("factors", {}).items():
        factor = name.replace("_", " ")
        for effect in record["values"]:
            told = f"p = {effect['p_adjusted']:.2g}" + (" *" if effect["moves"] else "")
            what = f"{factor}: {effect['value']}"
            rows.append([what, effect["label"], shown(effect["with"]), shown(effect["without"]), told])
        for label, change in ((label, (record["removed"] or {}).get(label)) for label in ("benign", "harmful")):
            if change:
                told = f"{change['changed']['estimate']:.0%} of decisions changed"
                whole, without = shown(change["refused_whole"]), shown(change["refused_without"])
                rows.append([f"{factor} taken away, the same {change['n']} requests", label, whole, without, told])
    return rows
