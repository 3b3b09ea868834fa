"""Options that several commands share, and JSON output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="A YAML configuration, e.g. configs/quickstart.yaml, or a run's directory."),
]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key; repeatable.")]
NO_OVERRIDES: list[str] = []
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Directory of the results.")]
RunOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory of the results; by default runs/NAME.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Leave out what it takes to end within e.g. 15m or 2h; says what, and its cost."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the steps, memory, disk and time; run nothing.")]


def minutes(time: str) -> float:
    """Return the minutes of a time such as 90s, 15m, 2h or 1h30m.

    Raises:
        UserError: the time has another form, or is zero.
    """
    from extract.errors import UserError

    found = re.fullmatch(r"(?:([0-9.]+)h)?(?:([0-9.]+)m)?(?:([0-9.]+)s)?", time.strip())
    try:
        hours, of_it, seconds = (float(part or 0) for part in found.groups()) if found else (0.0, 0.0, 0.0)
    except ValueError:  # such as 1.2.3m
        hours = of_it = seconds = 0.0
    if not (total := 60 * hours + of_it + seconds / 60) > 0:
        raise UserError(f"--budget {time!r} is no time; give hours, minutes or seconds, such as 15m, 2h or 1h30m")
    return total


def print_json(record: Any) -> None:
    """Print a result as JSON on standard output."""
    import json

    typer.echo(json.dumps(record, indent=1))


def wrapped(line: str, indent: int = 0) -> str:
    """Return a line broken at words to the width of the terminal; in a file or a pipe it stays one line.

    Args:
        indent: spaces before the further lines.
    """
    import shutil
    import sys
    import textwrap

    if not sys.stdout.isatty():
        return line
    broken = textwrap.wrap(
        line, shutil.get_terminal_size().columns, subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(broken)
