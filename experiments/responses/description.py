"""What a run's numbers depend on besides its configuration, for the manifest."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from experiments.responses.loaded_run import LoadedRun
from extract.extraction import versions
from extract.prompts.prompt import prompts_hash


@dataclass(frozen=True)
class RunDescription:
    """Versions, device, model and prompts of a run, under the manifest's keys."""

    versions: Mapping[str, str]
    device: str
    dtype: str
    seed: int
    model: Mapping[str, JsonValue]
    prompts: str  # their hash


def described(loaded: LoadedRun) -> RunDescription:
    """Describe a run; loads the model."""
    model, asked = loaded.model, loaded.config.model
    return RunDescription(
        versions=versions() | {"refusal-probes": importlib.metadata.version("refusal-probes")},
        device=str(model.device),
        dtype=str(model.dtype),
        seed=loaded.config.seed,
        model={"name": model.name, "revision": model.revision, "weights": model.fingerprint()}
        | asked.model_dump(mode="json", include={"adapter", "template", "template_args", "system"}),
        prompts=prompts_hash(loaded.prompts),
    )
