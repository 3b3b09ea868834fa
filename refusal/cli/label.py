"""`refusal label`: draws completions, lets a person label them, and prints how far two people agree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extract.errors import UserError
from extract.run_directory import file_to_write

if TYPE_CHECKING:
    from scoring.labels.draw import Draw
    from scoring.labels.label_file import LabelFile

USUAL_N, USUAL_SEED = 200, 0


def label(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, scored.jsonl, or the directory of one.")
    ],
    annotator: Annotated[str, typer.Option(metavar="NAME", help="Who labels; two people label the same completions.")],
    n: Annotated[int | None, typer.Option("--n", min=1, help=f"Completions to draw; {USUAL_N} by default.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of labels.jsonl, or a name ending in .jsonl; by default RUN's."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help=f"Seed of the draw; {USUAL_SEED} by default.")] = None,
    stratify: Annotated[
        bool | None,
        typer.Option("--stratify/--no-stratify", help="Draw more of what the judge seldom sees; weights are stored."),
    ] = None,
) -> None:
    """Label the actions of completions drawn at random, one key each, without seeing the judge's; run again to go on.

    Example: refusal label runs/quickstart --annotator ann --n 200

    Then: refusal score runs/quickstart/completions.jsonl --prompts PROMPTS --labels runs/quickstart/labels.jsonl
    """
    from rich.console import Console

    from refusal.cli.labelling_session import LabellingSession, keys
    from scoring.labels.label_file import LabelFile
    from scoring.scored_file import scored_path

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "refusal label needs a terminal, because a person presses a key for each completion; "
            "labels made elsewhere (a CSV of id and action) go to refusal score --labels"
        )
    if not annotator.strip():
        raise UserError("--annotator is empty; give the name of who labels")
    file = LabelFile(file_to_write(out or scored_path(source).parent, "labels.jsonl", ".jsonl"))
    draw = open_draw(source, file, n, seed, stratify)
    with keys() as read_key:
        LabellingSession(draw, file, annotator.strip()).run(Console(highlight=False), read_key)
    for line in summary(draw, file):
        typer.echo(line)


def open_draw(source: Path, file: LabelFile, n: int | None, seed: int | None, stratify: bool | None) -> Draw:
    """Return the draw of a file of labels: the stored one, that one with more completions, or a new one."""
    from extract.atomic_write import make_folder
    from scoring.labels.draw import Draw, draw_rows
    from scoring.scored_file import scored_path

    stored = file.path.with_suffix(".draw.json")
    if not stored.is_file():
        draw = draw_rows(source, n or USUAL_N, USUAL_SEED if seed is None else seed, stratify=bool(stratify))
    else:
        before = Draw.read(stored)
        given = {"seed": seed, "stratified": stratify, "source": str(scored_path(source).resolve())}
        for name, value in given.items():
            if value is not None and value != getattr(before, name):
                raise UserError(
                    f"{stored} holds a draw with {name} {getattr(before, name)}, not {value}; choose "
                    "another file for this draw with --out"
                )
        if n is None or n <= len(before.rows) or len(before.rows) == before.judged:
            return before
        draw = draw_rows(source, n, before.seed, stratify=before.stratified)
    make_folder(stored.parent)
    file.set_inclusion({row.key: row.inclusion for row in draw.rows})
    draw.write(stored)
    return draw


def summary(draw: Draw, file: LabelFile) -> list[str]:
    """Return lines: how many labels each person gave, how far two agree, and what to do next."""
    from itertools import combinations

    from scoring.labels.corrected import agreement_of
    from scoring.wording import pair_line

    names = file.annotators()
    lines = [f"{name}: {len(file.of(name))} of {len(draw.rows)} labelled" for name in names]
    groups = {row.key: row.group for row in draw.rows}
    for a, b in combinations(names, 2):
        pair = agreement_of(file.of(a), file.of(b), groups)
        lines += [pair_line(pair)] if pair else []
    return [*lines, f"Labels: {file.path}", f"Next: refusal score COMPLETIONS --labels {file.path}"]
