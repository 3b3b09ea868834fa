"""Detect prompts of an organism that are given to another model.

An organism's prompts are written in its own small grammar: rates and verdicts on them do not apply to another model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from experiments.run.config import RunConfig
from extract.errors import UserError
from extract.model.source import locate
from extract.prompts.prompt import Prompt
from extract.shipped import resolve_shipped

SOURCE = "organism"  # the `source` of every prompt that an organism's grammar generates


def on_another_model(config: RunConfig, prompts: Sequence[Prompt]) -> bool:
    """Return whether the prompts are an organism's and the model is not that organism.

    They are an organism's if their file is in a directory with a truth.json, or if at least half of them have its
    source. A copy of such a file does not name its organism, and then every organism counts as the right one.
    """
    path = config.prompts.path
    owner = None if path is None else _organism(resolve_shipped(path).parent)
    if owner is None and 2 * sum(prompt.source == SOURCE for prompt in prompts) < len(prompts):
        return False
    try:
        located = locate(config.model.name)
    except UserError:  # no such model: loading it reports this
        return False
    model = None if located is None else _organism(located)
    return model is None or (owner is not None and owner != model)


def warning(model: str) -> str:
    """Return the warning for a model, given by its name."""
    return (
        f"These prompts are written in the small grammar of an organism, and {model} is not that organism. The "
        "results say nothing about this model. Use prompts for real models: "
        "--set prompts.path=configs/prompts/core.jsonl, or your own file."
    )


def _organism(directory: Path) -> str | None:
    """Return the name in a directory's truth.json; None if there is none, or it is of an adapter, taught in English."""
    path = directory / "truth.json"
    if (directory / "adapter_config.json").is_file():
        return None
    return str(json.loads(path.read_text(encoding="utf-8")).get("name", "")) if path.is_file() else None
