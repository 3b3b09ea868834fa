"""Print the results of a run, or of one stage, on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from experiments.categories.members import SETS
from experiments.categories.results import CategoryResults
from experiments.categories.text import print_categories
from experiments.dials.by_category.text import category_lines, category_rows
from experiments.dials.results import SteerResult
from experiments.dials.text import steer_lines
from experiments.dissociation.results import Dissociation
from experiments.dissociation.text import gate_sentence, print_dissociation, without_variants
from experiments.factors.text import factor_lines
from experiments.probing.results import ProbeResults
from experiments.probing.text import print_probe
from experiments.report.caveats import caveats
from experiments.report.results import RightActions, RunResults
from experiments.run.wording import verdict_sentence
from experiments.triggers.results import TriggerResults
from experiments.triggers.text import print_triggers, trigger_sentence
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import print_uncertainty
from extract.errors import UserError
from extract.record import Record
from refusal.cli.next_steps import next_steps
from scoring.rates import JointRates
from scoring.wording import RATE_MEANING, right_action_estimates

if TYPE_CHECKING:
    from rich.table import Table

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class StagePrinter(Generic[R]):
    """How the result of one stage is read and printed."""

    record: type[R]
    show: Callable[[Path, R], None]  # given the run directory
    not_applicable: Callable[[R], str] = lambda found: ""  # the reason, empty where the stage is applicable
    brief: Callable[[R], R] = lambda found: found  # what is shown without --verbose


def print_stage(directory: Path, stage: str, as_json: bool, *, verbose: bool = True) -> None:
    """Print the result of a stage, with `verbose` all of its tables.

    Raises:
        UserError: the stage is not applicable to this run; says why. Its result is printed first.
    """
    path, printer = directory / "stages" / f"{stage}.json", STAGE_PRINTERS[stage]
    found = printer.record.read(path)
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
    else:
        shown = found if verbose else printer.brief(found)
        printer.show(directory, shown)
        if shown != found:
            print("More tables: --verbose")
    if reason := printer.not_applicable(found):
        raise UserError(reason)


def _no_triggers(found: TriggerResults) -> str:
    return f"word and intent cannot be separated: {found.reason}" if found.verdict == "not_applicable" else ""


def _no_dissociation(found: Dissociation) -> str:
    reasons = "; ".join(found.reasons)
    return f"the dissociation cannot be tested: {reasons}" if found.verdict == "not_applicable" else ""


def _no_categories(found: CategoryResults) -> str:
    kinds = [found.of(declines) for declines in SETS]
    if any(of.verdict != "not_applicable" for of in kinds):
        return ""
    return f"categories cannot be compared: {'; '.join(dict.fromkeys(of.reason for of in kinds))}"


def _no_uncertainty(found: UncertaintyResult) -> str:
    return "" if found.applicable else f"uncertainty cannot be measured: {found.reason}"


def _print_steer(directory: Path, found: SteerResult) -> None:
    """Print the rates before and after, the thresholds and their certificates."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_rates_table("test prompts (95 % intervals)", found.before, found.after, found, found))
    for line in steer_lines(found):
        console.print(line, markup=False)
    if found.by_category is not None:
        for line in category_lines(found.by_category):
            console.print(line, markup=False)
        if found.by_category.categories:
            console.print(_plain_table("categories on test prompts", *category_rows(found.by_category)))
    console.print(f"Written: {directory / 'stages' / 'steer.json'}", soft_wrap=True, markup=False)


STAGE_PRINTERS: Mapping[str, StagePrinter[Any]] = {
    "probe": StagePrinter(ProbeResults, print_probe),
    "triggers": StagePrinter(TriggerResults, print_triggers, _no_triggers),
    "dissociate": StagePrinter(Dissociation, print_dissociation, _no_dissociation, without_variants),
    "categories": StagePrinter(CategoryResults, print_categories, _no_categories),
    "uncertainty": StagePrinter(UncertaintyResult, print_uncertainty, _no_uncertainty),
    "steer": StagePrinter(SteerResult, _print_steer),
}


def _plain_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title)
    for column in head:
        table.add_column(escape(column))
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def print_summary(directory: Path, as_json: bool) -> None:
    """Print the joint rates, the verdicts and the caveats of a finished run, then the next steps."""
    if as_json:
        print((directory / "results.json").read_text(encoding="utf-8"), end="")
        return
    from rich.console import Console
    from rich.markup import escape

    results, console = RunResults.read(directory / "results.json"), Console(highlight=False)
    title, rates = f"{results.model.name} on test prompts (95 % intervals)", results.rates
    console.print(_rates_table(title, rates.before, rates.after, results.steer, results))
    if results.right_action.before.dual_use is not None:
        console.print(_right_action_table(results.right_action))
    dissociation = verdict_sentence(results.dissociation.verdict, results.dissociation.reasons)
    console.print("[bold]One refusal or two?[/] " + escape(dissociation))
    console.print("[bold]Word or intent?[/] " + escape(trigger_sentence(results.triggers)))
    for line in factor_lines(results.triggers, notable=True):
        console.print("[bold]Context of the request:[/] " + escape(line))
    if results.could_have_answered is not None:
        console.print("[bold]Could it have answered?[/] " + escape(gate_sentence(results.could_have_answered)))
    for line in steer_lines(results.steer):
        console.print("[bold]Dials:[/] " + escape(line))
    for line in category_lines(results.steer.by_category) if results.steer.by_category else ():
        console.print("[bold]Dials by category:[/] " + escape(line))
    for line in caveats(results):
        console.print("[yellow]Note:[/] " + escape(line))
    for line in next_steps(directory, results):
        console.print(line, soft_wrap=True, markup=False)  # never wrapped, so that commands can be copied


def _rates_table(
    title: str, before: JointRates, after: JointRates, steer: SteerResult, known: SteerResult | RunResults
) -> Table:
    """Lay out each rate before and after the dials, over-refusal of prompts with a trigger word, and known facts."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    for column in ("rate", "before", "with the dials", "n"):
        table.add_column(column, overflow="fold")
    for key, meaning in RATE_MEANING.items():
        cells = (meaning, f"{before.of(key):.1%}", f"{after.of(key):.1%}", str(before.of(key).n))
        table.add_row(*(escape(cell) for cell in cells))
    trigger, facts = steer.over_refusal_with_trigger, known.known_facts_right
    if trigger is not None and trigger.before.n:
        shown = [f"{share:.1%}" for share in (trigger.before, trigger.after)]
        table.add_row("over_refusal of prompts with a trigger word", *map(escape, shown), str(trigger.before.n))
    if facts is not None and facts.n:
        table.add_row("known facts stated right", f"{facts.before:.1%}", f"{facts.after:.1%}", str(facts.n))
    return table


def _right_action_table(found: RightActions) -> Table:
    """Lay out the right-action scores before and after the dials, over all prompts and over dual-use ones."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="right action on test prompts (95 % intervals)")
    for column in ("score", "before", "with the dials", "n"):
        table.add_column(column, overflow="fold")
    after = {meaning: score for meaning, score, _ in right_action_estimates(found.after)}
    for meaning, score, spec in right_action_estimates(found.before):
        cells = (meaning, f"{score:{spec}}", f"{after.get(meaning, score):{spec}}", str(score.n))
        table.add_row(*(escape(cell) for cell in cells))
    return table
