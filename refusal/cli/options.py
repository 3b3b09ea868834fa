"""Options that several commands share, and JSON output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML configuration, e.g. configs/quickstart.yaml.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key; repeatable.")]
NO_OVERRIDES: list[str] = []
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Directory of the results.")]
RunOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory of the results; by default runs/NAME.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the steps, memory, disk and time; run nothing.")]


def print_json(record: Any) -> None:
    """Print a result as JSON on standard output."""
    import json

    typer.echo(json.dumps(record, indent=1))
