"""Options that several commands share, and JSON output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from extract.errors import UserError
from extract.shipped import shipped

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.cluster.connection import WorkersWanted

CPU_BUDGET = "1h"  # of a model that is named without a configuration, where there is no GPU: the whole takes many hours
NO_BUDGET = "none"
SHIPPED = ("configs/*.yaml", "configs/models/*.yaml", "organisms/zoo/*/")  # what a shell completes


def complete_target(incomplete: str) -> list[str]:
    """Return the shipped configurations and organisms, and the local folders and YAML files, that begin so."""
    known = [name for pattern in SHIPPED for name in shipped(pattern)]
    parent = Path(incomplete or ".") if incomplete.endswith("/") or not incomplete else Path(incomplete).parent
    here = [
        f"{path}/" if path.is_dir() else str(path)
        for path in parent.glob("*")
        if path.is_dir() or path.suffix in (".yaml", ".yml", ".gguf")
    ]
    return sorted(
        {name for name in [*known, *here] if name.startswith(incomplete) and not Path(name).name.startswith(".")}
    )


Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG|MODEL",
        help="A YAML configuration, e.g. configs/quickstart.yaml, or a run's directory; or a model: its directory or "
        "an adapter's, GGUF file, package:NAME, hub id, or a name of `refusal models`.",
        autocompletion=complete_target,
    ),
]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a configuration key; repeatable.")]
NO_OVERRIDES: list[str] = []
RunOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory of the results; by default runs/NAME.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
AlsoRefuses = Annotated[
    Path | None,
    typer.Option(
        "--also-refuses", metavar="FILE", help="Phrases, one a line, that are refusals as this site words them."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Leave out what it takes to end within e.g. 15m or 2h; says what, and its cost."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what is left to run, time, memory and disk; run nothing.")
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print every step, stage and table.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Divide the work among Ray workers; without HOST:PORT, those of this machine's cluster, or of a new one.",
    ),
]
RayWorkers = Annotated[int | None, typer.Option("--workers", min=1, help="With --ray: how many; by default one a GPU.")]
GpusPerWorker = Annotated[
    float | None, typer.Option("--gpus-per-worker", min=0, help="With --ray: GPUs of each worker, by default 1.")
]
LocalDisks = Annotated[
    bool, typer.Option("--local-disks", help="With --ray: each node writes to its own disk, to be gathered later.")
]
SetsFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the sets' files: DIR/NAME/FILE, or DIR/FILE.")
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A hub id, a directory, a GGUF file, package:NAME, or a name of `refusal models`."
    ),
]
Dials = Annotated[
    Path | None, typer.Option(metavar="RUN", help="A run directory, or its dials.safetensors, from refusal steer.")
]
NormativeThreshold = Annotated[float | None, typer.Option(min=0, max=1, help="Refuse at or above this probability.")]
EpistemicThreshold = Annotated[float | None, typer.Option(min=0, max=1, help="Abstain at or above this probability.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")]
Template = Annotated[str | None, typer.Option(help="Chat template of a base model: plain, or a .jinja file.")]
Adapter = Annotated[str | None, typer.Option(metavar="DIR", help="A LoRA adapter (PEFT), merged into the weights.")]
TemplateArgs = Annotated[
    list[str], typer.Option("--template-arg", metavar="KEY=VALUE", help="e.g. enable_thinking=false; repeatable.")
]

ADDRESS = r"auto|local|(ray://)?[\w.\[\]:-]+:\d+"


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which --ray has its value: `auto` where no address follows it."""
    following = [*arguments[1:], ""]
    return [
        "--ray=auto" if word == "--ray" and not re.fullmatch(ADDRESS, after) else word
        for word, after in zip(arguments, following, strict=False)
    ]


def contrast_override(ways: str | None) -> list[str]:
    """Return the override that --contrast A,B stands for; none without it."""
    if ways is None:
        return []
    named = [way.strip() for way in ways.split(",")]
    if len(named) != 2 or not all(named):
        raise UserError(f"--contrast {ways}: expected two ways of declining, such as policy,instructed")
    return [f"prompts.contrast=[{', '.join(named)}]"]


def workers_wanted(
    address: str | None, workers: int | None, gpus_per_worker: float | None, *, local_disks: bool = False
) -> WorkersWanted | None:
    """Return what --ray, --workers, --gpus-per-worker and --local-disks ask for; None without --ray."""
    from experiments.cluster.connection import WorkersWanted

    if address is None:
        if workers is not None or gpus_per_worker is not None or local_disks:
            raise UserError("--workers, --gpus-per-worker and --local-disks are for Ray workers; give --ray, too")
        return None
    return WorkersWanted(address, workers, gpus_per_worker, local_disks)


def arguments(
    given: list[str], option: str = "--template-arg", such_as: str = "enable_thinking=false"
) -> dict[str, Any]:
    """Return the arguments given by an option that is KEY=VALUE."""
    from extract.yaml_file import key_and_value

    return dict(key_and_value(option, one, such_as) for one in given)


def minutes(time: str) -> float:
    """Return the minutes of a time such as 90s, 15m, 2h or 1h30m."""
    number = r"(\d+\.?\d*|\.\d+)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", time.strip(), re.ASCII)
    hours, of_hour, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    if not (total := 60 * hours + of_hour + seconds / 60) > 0:
        raise UserError(f"--budget {time!r} is no time; give hours, minutes or seconds, such as 15m, 2h or 1h30m")
    return total


def print_json(record: Any) -> None:
    """Print a result as JSON on standard output."""
    import json

    typer.echo(json.dumps(record, indent=1, default=str))


def print_result(record: Any, lines: Iterable[object], *, as_json: bool) -> None:
    """Print a result as JSON, or in lines for people."""
    if as_json:
        print_json(record)
    else:
        for line in lines:
            typer.echo(line)


def wrapped(line: str, indent: int = 0) -> str:
    """Return a line broken at words to the width of the terminal; in a file or a pipe it stays one line."""
    import shutil
    import sys
    import textwrap

    if not sys.stdout.isatty():
        return line
    width, later = shutil.get_terminal_size().columns, " " * indent
    broken = textwrap.wrap(line, width, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)
    return "\n".join(broken)


def print_plain(console: Console, text: str, style: str = "") -> None:
    """Print a text as it is: without markup, and not broken."""
    console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)


def visible(text: str) -> str:
    """Return a text with control characters replaced, so that it cannot move the cursor or change colours."""
    return "".join(c if c == "\n" or c.isprintable() else " " if c == "\t" else "\ufffd" for c in text)
