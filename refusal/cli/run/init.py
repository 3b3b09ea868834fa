"""`refusal init`: a commented configuration to start from."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

MORE = """
# More keys, each with its default; remove the "# " of a section to change it. configs/quickstart.yaml explains all.
# uncertainty:
#   samples: 0                       # answers to each question, to see whether they agree; 10 take ten times as long
# triggers:                          # requests for what no verdict depends on; 0 leaves it out
#   patched: 48
#   erased: 60
#   attributed: 24
# steer:
#   max_over_refusal: 0.05           # limits that the dials' thresholds are chosen to keep
#   max_missed_harm: 0.05
#   max_overconfidence: 0.1
"""


def add_init(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def init(
        file: Annotated[
            Path | None, typer.Argument(metavar="[FILE]", help="By default NAME.yaml, of the model.")
        ] = None,
        model: Annotated[
            str | None, typer.Option(metavar="MODEL", help="A hub id, a directory, a GGUF file, or package:NAME.")
        ] = None,
    ) -> None:
        """Write a commented configuration to start from; an existing file is never overwritten.

        Example: refusal init mine.yaml --model organisms/zoo/two-knobs
        """
        from refusal.cli.program import program

        path = write_configuration(file, model)
        typer.echo(f"Written: {path}")
        typer.echo("Next, see what it takes, and then run it:")
        typer.echo(f"  {program()} run {shlex.quote(str(path))} --dry-run")
        typer.echo(f"  {program()} run {shlex.quote(str(path))}")


def write_configuration(file: Path | None, model: str | None) -> Path:
    """Write the configuration for a model and return its path.

    Raises:
        UserError: there is no such model, or the file exists or cannot be written.
    """
    from extract.errors import UserError
    from extract.shipped import resolve_shipped
    from refusal.cli.run.target import REAL, settings_for

    chosen = settings_for(model) if model is not None else None
    if model is not None and chosen is None:
        raise UserError(
            f"model not found: {model!r} is no directory with config.json or adapter_config.json, GGUF "
            "file, package:NAME, or hub id of the form owner/name"
        )
    path = file or Path(f"{chosen.name if chosen else 'run'}.yaml")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-") or "run"
    text = resolve_shipped(chosen.base if chosen else REAL).read_text(encoding="utf-8")
    given = {"name": name} | ({"  name": chosen.model, "  path": str(chosen.prompts)} if chosen else {})
    if chosen is not None and chosen.adapter is not None:
        text = re.sub(r"(?m)^  adapter: .*\n", "", text)
        text = re.sub(r"(?m)^(  name: .*)$", rf"\1\n  adapter: {_yaml(chosen.adapter)}", text, count=1)
    for key, value in given.items():
        found = re.search(rf"(?m)^{key}: (\S+)", text)
        assert found is not None, f"{key!r} in a shipped configuration"
        text = text[: found.start(1)] + _yaml(value) + text[found.end(1) :]
    head = f"# refusal run {path} --dry-run says what it takes; refusal run {path} runs it.\n"
    body = text[text.index(f"name: {name}") :]
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(head + body + (MORE if "steer:" not in body else ""))
    except FileExistsError:
        raise UserError(f"{path} exists and is not overwritten; give another name: refusal init FILE") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return path


def _yaml(value: str) -> str:
    return value if re.fullmatch(r"[\w./:-]*[\w/-]", value) and not value.isdigit() else json.dumps(value)
