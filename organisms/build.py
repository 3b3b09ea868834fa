"""Builds an organism: trains it, grades it against its specification, and writes it if it meets the specification."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from extract.model.loading import load_model
from organisms.grading.interventions import class_means
from organisms.grading.targets import grade, missed_targets
from organisms.grading.trained import prepare_grading
from organisms.grammar import Grammar
from organisms.holdout import held_out, write_prompts
from organisms.spec import OrganismSpec, load_spec
from organisms.tokenizer import grammar_tokenizer
from organisms.training import Progress, train
from organisms.truth import truth_of


@dataclass(frozen=True)
class BuildResult:
    """The outcome of one build."""

    directory: Path | None  # None if the organism missed its specification
    measured: dict[str, float]
    missed: list[str]


def build(
    spec_path: Path,
    out: Path,
    *,
    progress: Progress = lambda step, losses: None,
    say: Callable[[str], None] = lambda line: None,
    device: str = "cpu",
) -> BuildResult:
    """Train and grade an organism; weights that miss their specification are not written.

    The float16 weights are graded, as they are loaded later, not the float32 weights of training.
    """
    spec = load_spec(spec_path)
    grammar = Grammar(spec)
    tokenizer = grammar_tokenizer(grammar)
    model = train(spec, grammar, tokenizer, progress, device)
    staging = out.with_name(out.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    model.to("cpu", torch.float16).save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    say("grading on held-out prompts")
    return publish(spec_path, staging, out)


def publish(spec_path: Path, staging: Path, out: Path) -> BuildResult:
    """Grade the weights and tokenizer in `staging` against a specification; move them to `out` if they meet it.

    If not, `staging` is removed and `out` is unchanged.
    """
    spec = load_spec(spec_path)
    grammar = Grammar(spec)
    rows = held_out(grammar)
    write_prompts(rows, staging / "prompts.jsonl")
    organism = prepare_grading(load_model(str(staging), device="cpu"), grammar, rows)
    measured = grade(organism)
    missed = missed_targets(spec, measured)
    if missed:
        shutil.rmtree(staging)
        return BuildResult(None, measured, missed)
    shutil.copy(spec_path, staging / "spec.yaml")
    (staging / "truth.json").write_text(truth_of(grammar, measured, class_means(organism)).text)
    (staging / "README.md").write_text(_card(spec, measured))
    if out.exists():
        shutil.rmtree(out)
    staging.replace(out)
    return BuildResult(out, measured, [])


def _card(spec: OrganismSpec, measured: dict[str, float]) -> str:
    rates = "\n".join(f"| {name} | {value:.3f} |" for name, value in measured.items() if not math.isnan(value))
    return (
        f"# {spec.name}\n\n{spec.description}\n\n"
        "A small chat model trained from scratch on a generated grammar; its refusal mechanism is planted by\n"
        "interchange-intervention training (arXiv 2112.00826) and known by construction. It is a test bed, and is not\n"
        f"evidence about real models. Rebuild with `refusal organism build {spec.name}` (seed {spec.seed}).\n\n"
        f"| measured on held-out prompts | |\n| --- | --- |\n{rates}\n\n"
        f"```yaml\n{yaml.safe_dump(spec.model_dump(mode='json', exclude={'targets'}), sort_keys=False)}```\n"
    )
