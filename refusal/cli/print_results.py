"""Print the results of a run, or of one stage, on the terminal; after a run, the commands to run next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.categories.members import SETS
from experiments.categories.results import CategoryResults
from experiments.categories.text import print_categories
from experiments.dials.results import SteerResult
from experiments.dials.text import category_table, steer_lines
from experiments.dissociation.results import Dissociation
from experiments.dissociation.text import gate_sentence, print_dissociation, thought_line
from experiments.factors.text import factor_lines
from experiments.probing.results import ProbeResults
from experiments.probing.text import print_probe, unspoken_sentence, unspoken_table
from experiments.report.caveats import caveats
from experiments.report.page.summary import rates_table, right_action_table
from experiments.report.results import RunResults
from experiments.run.basis import declines_sentence, declines_table
from experiments.run.wording import verdict_sentence
from experiments.triggers.results import TriggerResults
from experiments.triggers.text import print_triggers, trigger_sentence
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import print_uncertainty
from extract.errors import UserError
from extract.record import Record
from extract.shipped import ROOT
from extract.table import Paragraph, print_blocks
from refusal.cli.program import program, short_path

REAL_MODEL = "qwen2.5-coder-0.5b"  # can be had without the hub, too
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


def print_stage(directory: Path, stage: str, as_json: bool, *, verbose: bool = True) -> None:
    """Print the result of a stage, with `verbose` all of its tables; a UserError says why one is not applicable."""
    path, (record, show) = directory / "stages" / f"{stage}.json", STAGE_PRINTERS[stage]
    result = record.read(path)
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
    else:
        few = not verbose and isinstance(result, Dissociation)
        shown = result.model_copy(update={"variants": ()}) if few else result  # the other variants of ablation
        show(directory, shown)
        if shown != result:
            print("More tables: --verbose")
    if reason := _not_applicable(result):
        raise UserError(reason)


def _not_applicable(result: Record) -> str:
    """Return why a stage was not applicable; empty where it was."""
    match result:
        case TriggerResults(verdict="not_applicable"):
            return f"word and intent cannot be separated: {result.reason}"
        case Dissociation(verdict="not_applicable"):
            return f"the dissociation cannot be tested: {'; '.join(result.reasons)}"
        case CategoryResults():
            kinds = [result.of(declines) for declines in SETS]
            if all(of.verdict == "not_applicable" for of in kinds):
                return f"categories cannot be compared: {'; '.join(dict.fromkeys(of.reason for of in kinds))}"
        case UncertaintyResult(applicable=False):
            return f"uncertainty cannot be measured: {result.reason}"
    return ""


def _print_steer(directory: Path, result: SteerResult) -> None:
    """Print the rates before and after, the thresholds and their certificates."""
    trigger, facts = result.over_refusal_with_trigger, result.known_facts_right
    rates = rates_table("test prompts (95 % intervals)", result.before, result.after, trigger, facts)
    by_category = result.by_category
    categories = [category_table(by_category)] if by_category and by_category.categories else []
    print_blocks([rates, *steer_lines(result), *categories, f"Written: {directory / 'stages' / 'steer.json'}"])


STAGE_PRINTERS: Mapping[str, tuple[type[Record], Callable[[Path, Any], None]]] = {  # given the run directory
    "probe": (ProbeResults, print_probe),
    "triggers": (TriggerResults, print_triggers),
    "dissociate": (Dissociation, print_dissociation),
    "categories": (CategoryResults, print_categories),
    "uncertainty": (UncertaintyResult, print_uncertainty),
    "steer": (SteerResult, _print_steer),
}


def print_summary(directory: Path, as_json: bool) -> None:
    """Print the joint rates, the verdicts and the caveats of a finished run, then the next steps."""
    if as_json:
        print((directory / "results.json").read_text(encoding="utf-8"), end="")
        return
    results = RunResults.read(directory / "results.json")
    judged = f", judged by {results.judge}" if results.judge else ""
    title, rates = f"{results.model.name} on test prompts{judged} (95 % intervals)", results.rates
    trigger, facts = results.steer.over_refusal_with_trigger, results.known_facts_right
    tables = [rates_table(title, rates.before, rates.after if results.dials else None, trigger, facts)]
    declines = results.rates.by_reason
    tables += [] if declines is None else [declines_table(declines)]
    tables.append(unspoken_table(results.unspoken))
    if results.right_action.before.dual_use is not None:
        tables.append(right_action_table(results))
    two = results.dissociation
    verdict = verdict_sentence(two.verdict, two.reasons, basis=two.basis)
    gates = results.could_have_answered
    reasons = [] if declines is None else [declines_sentence(declines, kind) for kind in ("epistemic", "normative")]
    lines = [
        *(Paragraph(line, "Reason and words:") for line in reasons if line),
        Paragraph(verdict, "One refusal or two?"),
        *(Paragraph(line, "Its thought:") for line in filter(None, [thought_line(two.fixed_thought)])),
        Paragraph(trigger_sentence(results.triggers), "Word or intent?"),
        *(Paragraph(line, "Context of the request:") for line in factor_lines(results.triggers, notable=True)),
        *([] if gates is None else [Paragraph(gate_sentence(gates, two.basis), "Could it have answered?")]),
        *([Paragraph(f"{said}.", "Reading without saying:")] if (said := unspoken_sentence(results.unspoken)) else []),
        *steer_lines(results.steer),
        *(Paragraph(line, "Note:") for line in caveats(results)),
    ]
    print_blocks([*tables, *lines])
    for line in next_steps(directory, results):
        print(line)  # never wrapped, so that commands can be copied


def next_steps(directory: Path, results: RunResults) -> list[str]:
    """Return one line per entry; each command has a line of its own: after an organism a real model's, else a chat."""
    report = directory / "report.html"
    lines = [f"Report: {report}", f"Open it in a browser: {report.absolute().as_uri()}"]
    if TUTORIAL.is_file():
        lines.append(f"Tutorial notebook: {short_path(TUTORIAL)}")
    if results.organism:
        command = f"{program()} run"
        return [
            *lines,
            "Next, run a real model with prompts for real models. Cost first, then the run:",
            f"  {command} {REAL_MODEL} --dry-run",
            f"  {command} {REAL_MODEL}",
            "Any other chat model (put its hub id or directory for OWNER/MODEL):",
            f"  {command} OWNER/MODEL --dry-run",
            f"  {command} OWNER/MODEL",
        ]
    dials, model = directory / "dials.safetensors", results.model
    if not results.dials or not dials.is_file():
        return lines
    words = [model.name, "--dials", str(dials)]
    words += ["--adapter", model.adapter] if model.adapter else []
    words += ["--template", model.template] if model.template else []
    for key, value in model.template_args.items():
        words += ["--template-arg", f"{key}={json.dumps(value)}"]  # JSON is YAML
    return [*lines, "Next, chat with the model under these dials:", f"  {program()} chat {shlex.join(words)}"]
