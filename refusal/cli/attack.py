"""`refusal attack`: suffixes searched by gradient against a run's model and its normative dial."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extract.errors import UserError
from extract.run_directory import is_run
from refusal.cli import options


def attack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory with dials, e.g. runs/quickstart.")],
    against: Annotated[
        list[str], typer.Option("--against", metavar="model|dial|both", help="What is fooled; repeatable.")
    ] = ["model", "dial", "both"],  # noqa: B006 - typer reads it
    steps: Annotated[str, typer.Option("--steps", metavar="N,...", help="Budgets of a search.")] = "50,200,500",
    suffixes: Annotated[int, typer.Option(min=1, help="Searched for each aim; training takes three.")] = 9,
    prompts: Annotated[int, typer.Option(min=1, help="Training requests that one suffix is searched on.")] = 10,
    new: Annotated[int, typer.Option(min=5, help="Test requests that each suffix is tried on.")] = 40,
    candidates: Annotated[int, typer.Option(min=1, help="Exchanges of a token tried at a step.")] = 32,
    suffix_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a suffix.")] = 12,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Search suffixes that switch a run's refusals and its normative dial off, or on; what training on them buys.

    Writes RUN/attack.json: rates and losses. No suffix and no answer is written or shown.

    Example: refusal attack runs/quickstart --against dial --steps 50,200
    """
    from typing import cast, get_args

    from experiments.attack.measure import Attack, AttackSettings, attacked
    from experiments.attack.results import Against, blocks
    from experiments.responses.loaded_run import LoadedRun
    from experiments.run.config import load_config
    from extract.model.loading_options import quiet_libraries
    from extract.progress import Reporter
    from extract.table import print_blocks

    if not is_run(run):
        raise UserError(f"{run} is no run directory: it has no config.yaml; make one with: refusal run CONFIG")
    if unknown := [name for name in against if name not in get_args(Against)]:
        raise UserError(f"--against {unknown[0]}: expected {', '.join(get_args(Against))}")
    budgets = [part.strip() for part in steps.split(",")]
    if not all(part.isdecimal() and int(part) for part in budgets):
        raise UserError(f"--steps {steps}: expected numbers of steps, such as 50,200,500")
    quiet_libraries()
    named = tuple(cast(Against, name) for name in dict.fromkeys(against))
    settings = AttackSettings(
        named, tuple(sorted(set(map(int, budgets)))), suffixes, prompts, new, candidates, suffix_tokens
    )
    loaded = LoadedRun(load_config(run / "config.yaml"), run, Reporter(quiet=quiet or as_json))
    result = attacked(Attack(loaded, settings))
    result.write(run / "attack.json")
    if as_json:
        options.print_json(result.to_dict())
        return
    print_blocks(blocks(result))
    typer.echo(f"Every rate with its limits: {run / 'attack.json'}", err=True)
