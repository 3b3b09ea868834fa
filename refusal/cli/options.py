"""What several commands share: the options that mean the same everywhere, and printing for machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML configuration, e.g. configs/quickstart.yaml.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key; repeatable.")]
NO_OVERRIDES: list[str] = []
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go.")]
RunOut = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go; by default runs/NAME.")]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable results.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def print_json(record: Any) -> None:
    """Print a result for machines."""
    import json

    typer.echo(json.dumps(record, indent=1))
