"""Verdicts on mechanisms planted in a pretrained model: configs/real.yaml with each adapter and its own prompts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.grading.cases import GradedCase
from extract.shipped import ROOT
from organisms.teaching.spec import TeachSpec, load_teach_spec

QUICK = ("extract.layers=[15]", "dissociate.n_null_onset=39", "dissociate.n_onset=8", "generate.max_new_tokens=12")


@dataclass(frozen=True)
class English:
    """One adapter; at the layers of the configuration, or at the planted layer alone."""

    adapter: Path
    planted_layer: bool

    @property
    def spec(self) -> TeachSpec:
        return load_teach_spec(self.adapter / "spec.yaml")

    @property
    def name(self) -> str:
        return self.adapter.name + (", planted layer" if self.planted_layer else "")


def english_cases() -> list[English]:
    """Return the shipped adapters with a planted mechanism, each in both ways."""
    planted = [path.parent for path in sorted((ROOT / "organisms" / "taught").glob("*/truth.json"))]
    return [English(adapter, at) for adapter in planted for at in (False, True)]


def run_english(case: English, folder: Path, quick: bool) -> GradedCase:
    """Run one case as the command does, and grade it after its verdict is written."""
    from experiments.pipeline.results import grade_planted
    from experiments.pipeline.stages import run
    from experiments.run.behaviour import KINDS
    from experiments.run.config import load_config
    from experiments.run.inputs import RunInputs
    from extract.model.loading_options import quiet_libraries
    from extract.progress import Reporter

    quiet_libraries()
    spec = case.spec
    if spec.verdicts is None or spec.planting is None:
        raise ValueError(f"{case.adapter}: the specification states no verdicts")
    settings = [
        f"model.adapter={case.adapter}",
        f"prompts.path={case.adapter / 'prompts.jsonl'}",
        f"model.dtype={fast_dtype()}",
    ]
    if case.planted_layer:
        settings.append(f"extract.layers=[{spec.planting.mechanism.layer}]")
    config = load_config(Path("configs/real.yaml"), [*settings, *(QUICK if quick else ())])
    directory = folder / case.name
    run(config, directory, until="dissociate", reporter=Reporter(quiet=True))
    record = json.loads((directory / "stages" / "dissociate.json").read_text(encoding="utf-8"))
    found = grade_planted(RunInputs(config, directory))
    cosines = {str(kind): None if found is None else getattr(found, f"{kind}_cosine") for kind in KINDS}
    stated = spec.verdicts.planted if case.planted_layer else spec.verdicts.free
    right, forbidden, reason = frozenset(stated.allowed), frozenset(stated.forbidden), "; ".join(record["reasons"])
    return GradedCase(case.name, record["verdict"], right, forbidden, cosines, reason)


def fast_dtype() -> str:
    """Return bfloat16 where the processor has instructions for it (RESULTS: bfloat16); else the default."""
    has = torch.cpu.get_capabilities()
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "auto"


def print_english(graded: list[GradedCase]) -> None:
    """Print one line per case, and why where it is open or false."""
    for case in graded:
        cosines = ", ".join("-" if c is None else f"{c:.3f}" for c in case.cosines.values())
        print(f"{case.name:<34} {case.verdict:<22} {case.grade:<6} |cos| N, E {cosines}")
        if not case.decided:
            print(f"{'':<34} {case.reason}")


def english_figures(graded: list[GradedCase]) -> dict[str, float]:
    """Return the figures of the benchmark."""
    cosines = [cosine for case in graded for cosine in case.cosines.values() if cosine is not None]
    return {
        "english_right": sum(case.decided for case in graded),
        "english_forbidden": sum(case.verdict in case.forbidden for case in graded),
        "english_total": len(graded),
        "english_least_cosine": min(cosines, default=float("nan")),
    }
