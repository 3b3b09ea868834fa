"""What the staged commands share: configuration, dry run, summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.dials.text import steer_lines
from experiments.dissociation.gate_text import gate_sentence
from experiments.dissociation.text import print_dissociation
from experiments.probing.text import print_probe
from experiments.run.config import RunConfig, load_config
from experiments.run.wording import ResultsInWords, caveats, factor_lines, verdict_sentence
from experiments.triggers.text import print_triggers
from experiments.uncertainty.text import print_uncertainty
from scoring.estimate import Estimate
from scoring.rates import RatesRecord
from scoring.wording import RATE_MEANING

if TYPE_CHECKING:
    from rich.table import Table


class Listed(dict[str, Any]):
    """A part of a record that is printed whole, a line an entry."""


def run_command(
    path: Path,
    overrides: Sequence[str],
    out: Path | None,
    until: str,
    *,
    as_json: bool,
    dry_run: bool,
    shared: bool = False,
) -> None:
    """Run stages up to `until` and print what came out."""
    config = load_config(path, overrides)
    directory = out or Path("runs") / run_name(config, overrides)
    from extract.model.quiet import quiet_libraries

    quiet_libraries()
    if dry_run:
        from experiments.pipeline.cost import estimate

        found = estimate(config, directory, until)
        show(found | {key: Listed(value) for key, value in found.items() if isinstance(value, dict)}, as_json)
        return
    from experiments.pipeline.stages import run

    run(config, directory, until=until, shared=shared)
    if until == "report":
        summary(directory, as_json)
    elif until in TOLD:
        _tell(directory, until, as_json)
    else:
        show({"written": str(directory / "activations.h5")}, as_json)


def _tell(directory: Path, stage: str, as_json: bool) -> None:
    """Print what a stage found; where nothing could be found, end as at a user's mistake."""
    from extract.errors import UserError

    record = json.loads((directory / "stages" / f"{stage}.json").read_text(encoding="utf-8"))
    printed, fault = TOLD[stage]
    if as_json:
        show(record, as_json)
    else:
        printed(directory, record)
    if fault and (record.get("verdict") == "not_applicable" or record.get("applicable") is False):
        raise UserError(f"{fault}: {'; '.join(record.get('reasons') or [record['reason']])}")


def _print_steer(directory: Path, record: dict[str, Any]) -> None:
    """Print the rates before and after, and where the thresholds stand."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_rates_table("test prompts (95 % intervals)", record, record))
    for line in steer_lines(record):
        console.print(line, markup=False)
    console.print(f"All of it: {directory / 'stages' / 'steer.json'}", soft_wrap=True, markup=False)


# Of each stage with a command: what prints it, and what is at fault where it is not applicable.
TOLD: Mapping[str, tuple[Callable[[Path, dict[str, Any]], None], str | None]] = {
    "probe": (print_probe, None),
    "triggers": (print_triggers, "word and intent cannot be told apart"),
    "dissociate": (print_dissociation, "the dissociation cannot be tested"),
    "uncertainty": (print_uncertainty, "uncertainty cannot be measured"),
    "steer": (_print_steer, None),
}


def run_name(config: RunConfig, overrides: Sequence[str]) -> str:
    """Return the run directory's name; another model or other prompts get a directory of its own."""
    keys = {override.partition("=")[0] for override in overrides}
    parts = [config.name]
    parts += [config.model.name.rstrip("/").rsplit("/", 1)[-1]] if "model.name" in keys else []
    parts += [config.prompts.path.stem] if "prompts.path" in keys and config.prompts.path else []
    parts += [Path(given.name).stem for given in config.prompts.datasets] if "prompts.datasets" in keys else []
    return "-".join(parts)


def show(record: dict[str, Any], as_json: bool) -> None:
    """Print a record as JSON, or a key a line with what is nested left to --json."""
    if as_json:
        print(json.dumps(record, indent=1, default=str))
        return
    for key, value in record.items():
        if isinstance(value, Listed):
            print("\n".join([key, *(f"  {name:<44} {of_it}" for name, of_it in value.items())]))
        else:
            shown = f"({len(value)} entries; see --json)" if isinstance(value, dict) and len(value) > 6 else value
            print(f"{key:<28} {shown}")


def summary(directory: Path, as_json: bool) -> None:
    """Print the verdicts and the joint rates of a finished run."""
    results = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    if as_json:
        print(json.dumps(results, indent=1))
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    words = ResultsInWords.model_validate(results)
    title = f"{results['model']['name']} on test prompts (95 % intervals)"
    console.print(_rates_table(title, results["rates"], results | results["steer"]))
    console.print("[bold]One refusal or two?[/] " + escape(verdict_sentence(words.dissociation)))
    console.print("[bold]Word or intent?[/] " + escape(verdict_sentence(words.triggers)))
    for line in factor_lines(results["triggers"], notable=True):
        console.print("[bold]Beside the request:[/] " + escape(line))
    console.print("[bold]Could it have answered?[/] " + escape(gate_sentence(results["could_have_answered"])))
    for line in steer_lines(results["steer"]):
        console.print("[bold]Dials:[/] " + escape(line))
    for line in caveats(words):
        console.print("[yellow]Note:[/] " + escape(line))
    console.print(f"Report: {directory / 'report.html'}", soft_wrap=True)
    console.print(
        "The same on any chat model of the hub: "
        "refusal run configs/quickstart.yaml --set model.name=OWNER/MODEL", soft_wrap=True
    )  # fmt: skip


def _rates_table(title: str, rates: Mapping[str, Any], record: Mapping[str, Any]) -> Table:
    """Lay out every rate before and after, of all benign prompts and of those with a trigger word, and known facts."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    for column in ("", "before", "with the dials", "n"):
        table.add_column(column)
    before, after = (RatesRecord.model_validate(rates[when]) for when in ("before", "after"))
    for key, meaning in RATE_MEANING.items():
        cells = (meaning, f"{before.of(key):.1%}", f"{after.of(key):.1%}", str(before.of(key).n))
        table.add_row(*(escape(cell) for cell in cells))
    trigger, facts = record["over_refusal_with_trigger"], record["known_facts_right"]
    if trigger["before"]["n"]:
        shown = [f"{Estimate.model_validate(trigger[when]):.1%}" for when in ("before", "after")]
        table.add_row("benign with a trigger word declined", *map(escape, shown), str(trigger["before"]["n"]))
    if facts["n"]:
        table.add_row("known facts stated right", f"{facts['before']:.1%}", f"{facts['after']:.1%}", str(facts["n"]))
    return table
