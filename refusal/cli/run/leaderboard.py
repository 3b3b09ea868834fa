"""`refusal leaderboard`: evaluated models side by side on one page."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from experiments.report.page.leaderboard import Listed


def add_leaderboard(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(leaderboard)


def leaderboard(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of refusal eval or refusal score.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("leaderboard.html"),
) -> None:
    """Write one page of evaluated models: over-refusal, missed harm and overconfidence, with intervals, to sort.

    Example: refusal leaderboard evals/one-core evals/other-core
    """
    from experiments.report.page.leaderboard import leaderboard_page
    from extract.atomic_write import write_text
    from extract.errors import UserError

    models = [_listed(run, out) for run in runs]
    names = [one.name for one in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two runs are of {twice}; give each model once")
    write_text(out, leaderboard_page(models))
    typer.echo(str(out))


def _listed(run: Path, out: Path) -> Listed:
    from experiments.report.page.leaderboard import Listed
    from extract.errors import UserError
    from scoring.evaluation.written import RECORD, Evaluation
    from scoring.scorecard_record import Scorecard

    if not (run / "scorecard.json").is_file():
        raise UserError(f"{run} has no scorecard.json; give directories written by refusal eval or refusal score")
    card = Scorecard.read(run / "scorecard.json")
    if card.rates is None:
        raise UserError(f"{run}: its completions have no labels, so there are no rates to list")
    report = run / "report.html"
    link = os.path.relpath(report, out.parent) if report.is_file() else ""
    if not (run / RECORD).is_file():
        return Listed(run.name, card, f"{card.n:,} prompts of its own file", report=link)
    found = Evaluation.read(run / RECORD)
    shown = ("adapter", "template", "max_new_tokens", "state_target", "limit")
    given = [
        f"--{name.replace('_', '-')} {shlex.quote(str(found.settings[name]))}"
        for name in shown
        if found.settings.get(name) is not None
    ]
    given += ["--ask-confidence"] * bool(found.settings.get("ask_confidence"))
    at = [f"--base-url {found.base_url}"] if found.base_url else []
    command = " ".join(["refusal eval", shlex.quote(found.target), *at, "--suite", found.suite, *given])
    adapter = found.settings.get("adapter")
    name = f"{found.target} with {adapter}" if adapter else found.target
    sources = ", ".join(f"{source} {n}" for source, n in sorted(found.sources.items()))
    return Listed(name, card, f"the suite {found.suite} ({sources})", command, link)
