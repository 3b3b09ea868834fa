"""What a run or one of its stages found, on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.dials.results import SteerResult
from experiments.dials.text import steer_lines
from experiments.dissociation.results import Dissociation
from experiments.dissociation.text import gate_sentence, print_dissociation
from experiments.factors.text import factor_lines
from experiments.probing.results import ProbeResults
from experiments.probing.text import print_probe
from experiments.report.caveats import caveats
from experiments.report.results import RunResults
from experiments.run.wording import verdict_sentence
from experiments.triggers.results import TriggerResults
from experiments.triggers.text import print_triggers, trigger_sentence
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import print_uncertainty
from extract.errors import UserError
from scoring.rates import RatesRecord
from scoring.wording import RATE_MEANING

if TYPE_CHECKING:
    from rich.table import Table


def print_stage(directory: Path, stage: str, as_json: bool) -> None:
    """Print what a stage found; where nothing could be found, end as at a user's mistake."""
    path = directory / "stages" / f"{stage}.json"
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
    if reasons := SHOWN[stage](directory, path, as_json):
        raise UserError(reasons)


def _probe(directory: Path, path: Path, as_json: bool) -> str:
    if not as_json:
        print_probe(directory, ProbeResults.read(path))
    return ""


def _triggers(directory: Path, path: Path, as_json: bool) -> str:
    found = TriggerResults.read(path)
    if not as_json:
        print_triggers(directory, found)
    absent = found.verdict == "not_applicable"
    return f"word and intent cannot be told apart: {found.reason}" if absent else ""


def _dissociate(directory: Path, path: Path, as_json: bool) -> str:
    found = Dissociation.read(path)
    if not as_json:
        print_dissociation(directory, found)
    absent = found.verdict == "not_applicable"
    return f"the dissociation cannot be tested: {'; '.join(found.reasons)}" if absent else ""


def _uncertainty(directory: Path, path: Path, as_json: bool) -> str:
    found = UncertaintyResult.read(path)
    if not as_json:
        print_uncertainty(directory, found)
    return "" if found.applicable else f"uncertainty cannot be measured: {found.reason}"


def _steer(directory: Path, path: Path, as_json: bool) -> str:
    """Print the rates before and after, and where the thresholds stand."""
    if as_json:
        return ""
    from rich.console import Console

    found, console = SteerResult.read(path), Console(highlight=False)
    console.print(_rates_table("test prompts (95 % intervals)", found.before, found.after, found, found))
    for line in steer_lines(found):
        console.print(line, markup=False)
    console.print(f"All of it: {path}", soft_wrap=True, markup=False)
    return ""


# Of each stage with a command: what prints it and returns why it is not applicable, or nothing.
SHOWN: Mapping[str, Callable[[Path, Path, bool], str]] = {
    "probe": _probe,
    "triggers": _triggers,
    "dissociate": _dissociate,
    "uncertainty": _uncertainty,
    "steer": _steer,
}


def print_summary(directory: Path, as_json: bool) -> None:
    """Print the verdicts and the joint rates of a finished run."""
    if as_json:
        print((directory / "results.json").read_text(encoding="utf-8"), end="")
        return
    from rich.console import Console
    from rich.markup import escape

    results, console = RunResults.read(directory / "results.json"), Console(highlight=False)
    title, rates = f"{results.model.name} on test prompts (95 % intervals)", results.rates
    console.print(_rates_table(title, rates.before, rates.after, results.steer, results))
    dissociation = verdict_sentence(results.dissociation.verdict, results.dissociation.reasons)
    console.print("[bold]One refusal or two?[/] " + escape(dissociation))
    console.print("[bold]Word or intent?[/] " + escape(trigger_sentence(results.triggers)))
    for line in factor_lines(results.triggers, notable=True):
        console.print("[bold]Beside the request:[/] " + escape(line))
    if results.could_have_answered is not None:
        console.print("[bold]Could it have answered?[/] " + escape(gate_sentence(results.could_have_answered)))
    for line in steer_lines(results.steer):
        console.print("[bold]Dials:[/] " + escape(line))
    for line in caveats(results):
        console.print("[yellow]Note:[/] " + escape(line))
    console.print(f"Report: {directory / 'report.html'}", soft_wrap=True)
    console.print(
        "The same on any chat model of the hub: "
        "refusal run configs/quickstart.yaml --set model.name=OWNER/MODEL", soft_wrap=True
    )  # fmt: skip


def _rates_table(
    title: str, before: RatesRecord, after: RatesRecord, steer: SteerResult, known: SteerResult | RunResults
) -> Table:
    """Lay out every rate before and after, of all benign prompts and of those with a trigger word, and known facts."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    for column in ("", "before", "with the dials", "n"):
        table.add_column(column)
    for key, meaning in RATE_MEANING.items():
        cells = (meaning, f"{before.of(key):.1%}", f"{after.of(key):.1%}", str(before.of(key).n))
        table.add_row(*(escape(cell) for cell in cells))
    trigger, facts = steer.over_refusal_with_trigger, known.known_facts_right
    if trigger is not None and trigger.before.n:
        shown = [f"{share:.1%}" for share in (trigger.before, trigger.after)]
        table.add_row("benign with a trigger word declined", *map(escape, shown), str(trigger.before.n))
    if facts is not None and facts.n:
        table.add_row("known facts stated right", f"{facts.before:.1%}", f"{facts.after:.1%}", str(facts.n))
    return table
