"""The commands that run stages: configuration, dry run, run, printed results."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.run.config import RunConfig, load_config
from extract.run_directory import is_run
from refusal.cli.options import minutes, wrapped


class Listed(dict[str, Any]):
    """A part of a record that is printed in full, one line per entry."""


def run_command(
    path: Path,
    overrides: Sequence[str],
    out: Path | None,
    until: str,
    *,
    as_json: bool,
    dry_run: bool,
    shared: bool = False,
    budget: str | None = None,
) -> None:
    """Run the stages up to `until` and print the results; in a dry run, print the cost alone.

    With a budget, such as 15m, the run is cut to end within that time.

    Raises:
        UserError: a mistake in the configuration, the prompts or the model, or a stage that is not applicable.
    """
    config = load_config(path, overrides)
    directory = _of_process(out or (path if is_run(path) else Path("runs") / run_name(config, overrides)), config)
    from extract.model.quiet import quiet_libraries

    quiet_libraries()
    model = None
    if budget is not None:
        from experiments.pipeline.budgeted_run import fit_budget
        from extract.progress import Reporter

        fitted = fit_budget(config, directory, until, minutes(budget), Reporter())
        config, model = fitted.config, fitted.model
    if dry_run:
        from experiments.pipeline.plan import estimate
        from experiments.pipeline.stages import check_files

        check_files(config)
        found = estimate(config, directory, until)
        show(found | {key: Listed(value) for key, value in found.items() if isinstance(value, dict)}, as_json)
        return
    from experiments.pipeline.stages import run

    run(config, directory, until=until, shared=shared, model=model)
    from refusal.cli.print_results import STAGE_PRINTERS, print_stage, print_summary

    if until == "report":
        print_summary(directory, as_json)
    elif until in STAGE_PRINTERS:
        print_stage(directory, until, as_json)
    else:
        show({"written": str(directory / "activations.h5")}, as_json)


def _of_process(directory: Path, config: RunConfig) -> Path:
    """Return the run directory of this process: with layers split over processes, each writes its own files."""
    rank = os.environ.get("RANK", "0")
    split = config.model.loading.tp_plan is not None and rank != "0"
    return directory.with_name(f"{directory.name}.rank{rank}") if split else directory


def run_name(config: RunConfig, overrides: Sequence[str]) -> str:
    """Return the name of the run directory; an override of the model or the prompts is a part of it."""
    keys = {override.partition("=")[0] for override in overrides}
    parts = [config.name]
    parts += [config.model.name.rstrip("/").rsplit("/", 1)[-1]] if "model.name" in keys else []
    parts += [config.prompts.path.stem] if "prompts.path" in keys and config.prompts.path else []
    parts += [Path(given.name).stem for given in config.prompts.datasets] if "prompts.datasets" in keys else []
    return "-".join(parts)


def show(record: dict[str, Any], as_json: bool) -> None:
    """Print a record as JSON, or one line per key; large nested parts appear in JSON only."""
    if as_json:
        print(json.dumps(record, indent=1, default=str))
        return
    for key, value in record.items():
        if isinstance(value, Listed):
            print("\n".join([key, *(wrapped(f"  {name:<44} {of_it}", 47) for name, of_it in value.items())]))
        else:
            shown = f"({len(value)} entries; see --json)" if isinstance(value, dict) and len(value) > 6 else value
            print(wrapped(f"{key:<28} {shown}", 29))
