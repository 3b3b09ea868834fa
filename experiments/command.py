"""What the staged commands share: configuration, dry run, summary."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.config import RunConfig, load_config
from experiments.probe_text import print_probe
from experiments.trigger_text import print_triggers
from experiments.wording import RATE_MEANING, caveats, factor_lines, percent, verdict_sentence


def run_command(
    path: Path,
    overrides: Sequence[str],
    out: Path | None,
    until: str,
    *,
    as_json: bool,
    dry_run: bool,
    shared: bool = False,
) -> None:
    """Run stages up to `until` and print what came out."""
    config = load_config(path, overrides)
    directory = out or Path("runs") / run_name(config, overrides)
    if dry_run:
        show(estimate(config, directory, until), as_json)
        return
    quiet_libraries()
    from experiments.pipeline import run

    run(config, directory, until=until, shared=shared)
    if until == "report":
        summary(directory, as_json)
    elif until == "probe" and not as_json:
        print_probe(directory, json.loads((directory / "stages" / "probe.json").read_text(encoding="utf-8")))
    elif until == "triggers" and not as_json:
        print_triggers(directory, json.loads((directory / "stages" / "triggers.json").read_text(encoding="utf-8")))
    else:
        stage = directory / "stages" / f"{until}.json"
        record = json.loads(stage.read_text()) if stage.is_file() else {"written": str(directory / "activations.h5")}
        show(record, as_json)


def quiet_libraries() -> None:
    """Keep other libraries' progress bars and advice out of ours."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)


def run_name(config: RunConfig, overrides: Sequence[str]) -> str:
    """Return the run directory's name; another model or other prompts get a directory of its own."""
    keys = {override.partition("=")[0] for override in overrides}
    parts = [config.name]
    parts += [config.model.name.rstrip("/").rsplit("/", 1)[-1]] if "model.name" in keys else []
    parts += [config.prompts.path.stem] if "prompts.path" in keys and config.prompts.path else []
    parts += [Path(given.name).stem for given in config.prompts.datasets] if "prompts.datasets" in keys else []
    return "-".join(parts)


def estimate(config: RunConfig, directory: Path, until: str) -> dict[str, Any]:
    """Say what a run would do: tokens, bytes, and a rough time from the model's size."""
    import torch
    from transformers import AutoModelForCausalLM

    from experiments.sources import read_prompts
    from extract.chat import position_names, render
    from extract.loading import load_tokenizer

    quiet_libraries()
    prompts = read_prompts(config.prompts, config.seed)
    wanted = config.model
    shape, tokenizer = load_tokenizer(wanted.name, revision=wanted.revision, template=wanted.template)
    rendered = [render(tokenizer, prompt) for prompt in prompts]
    with torch.device("meta"):
        n_parameters = sum(p.numel() for p in AutoModelForCausalLM.from_config(shape).parameters())
    tokens = sum(len(row.token_ids) for row in rendered)
    text = shape.get_text_config()
    wanted_here = config.extract
    n_layers = len(wanted_here.layers or range(text.num_hidden_layers))
    names = wanted_here.positions or position_names(rendered, trigger=any(p.trigger for p in prompts))
    chosen = wanted_here.store_dtype if wanted_here.store_dtype != "auto" else wanted.dtype
    width = 4 if chosen == "float32" or (chosen == "auto" and not torch.cuda.is_available()) else 2
    stored = n_layers * (len(names) + wanted_here.response_tokens) * len(prompts) * text.hidden_size * width
    # Every intervention generates for the test prompts again; nulls add about as much.
    passes = 1 if until == "extract" else 2 + 14 * config.prompts.test
    generated = int(len(prompts) * passes * config.generate.max_new_tokens) if until != "extract" else 0
    generated += len(prompts) * wanted_here.response_tokens
    rate = 2e14 if torch.cuda.is_available() else 5e10  # sustained FLOP/s assumed
    seconds = 2 * n_parameters * (tokens * passes + generated) / rate
    return {
        "would run": f"stages up to {until}",
        "model": config.model.name,
        "parameters": n_parameters,
        "prompts": len(prompts),
        "prompt tokens": tokens,
        "generated tokens, at most": generated,
        "activations on disk, bytes": stored,
        "rough time": f"{seconds / 60:.1f} minutes (compute alone, at {rate:.0e} FLOP/s)",
        "directory": str(directory),
    }


def show(record: dict[str, Any], as_json: bool) -> None:
    """Print a record as JSON, or a key a line with what is nested left to --json."""
    if as_json:
        print(json.dumps(record, indent=1, default=str))
        return
    for key, value in record.items():
        shown = f"({len(value)} entries; see --json)" if isinstance(value, dict) and len(value) > 6 else value
        print(f"{key:<28} {shown}")


def summary(directory: Path, as_json: bool) -> None:
    """Print the verdicts and the joint rates of a finished run."""
    results = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    if as_json:
        print(json.dumps(results, indent=1))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=escape(f"{results['model']['name']} on test prompts (95 % intervals)"))
    for column in ("", "before", "with the dials", "n"):
        table.add_column(column)
    before, after = results["rates"]["before"], results["rates"]["after"]
    for key, meaning in RATE_MEANING.items():
        cells = (meaning, percent(before, key), percent(after, key), str(before[f"{key}_n"]))
        table.add_row(*(escape(cell) for cell in cells))
    facts = results["known_facts_right"]
    if facts["n"]:
        table.add_row("known facts stated right", f"{facts['before']:.1%}", f"{facts['after']:.1%}", str(facts["n"]))
    console.print(table)
    console.print("[bold]One refusal or two?[/] " + escape(verdict_sentence(results["dissociation"])))
    console.print("[bold]Word or intent?[/] " + escape(verdict_sentence(results["triggers"])))
    for line in factor_lines(results["triggers"], notable=True):
        console.print("[bold]Beside the request:[/] " + escape(line))
    for line in caveats(results):
        console.print("[yellow]Note:[/] " + escape(line))
    console.print(f"Report: {directory / 'report.html'}", soft_wrap=True)
    console.print(
        "The same on any chat model of the hub: "
        "refusal run configs/quickstart.yaml --set model.name=OWNER/MODEL", soft_wrap=True
    )  # fmt: skip
