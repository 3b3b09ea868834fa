"""Builds an organism: trains it, measures its targets, and writes it if it meets its specification."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from extract.chat.render import Rendered
from extract.model.loading import load_model
from organisms.grading import (
    TrainedOrganism,
    action,
    class_means,
    interchanged,
    last_streams,
    opened,
    prepare_grading,
    render_examples,
    respond,
    unmoved,
)
from organisms.grammar import Example, Grammar
from organisms.holdout import held_out, write_prompts
from organisms.planting import truth_of
from organisms.spec import OrganismSpec, load_spec
from organisms.tokenizer import grammar_tokenizer
from organisms.training import Progress, train


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


N_TRAINING = 1200  # training prompts for the intent baselines


def grade(organism: TrainedOrganism) -> dict[str, float]:
    """Measure every target of the specification; NaN if the prompts have no such case."""
    responses = respond(organism)
    plain = np.array([action(text) for text in responses])
    wanted = organism.spec.targets.single_direction_stops is not None
    return (
        _behaviour(organism, responses)
        | interchanged(organism, plain)
        | unmoved(organism, plain, single_directions=wanted)
        | _intent(organism)
    )


def missed_targets(spec: OrganismSpec, measured: dict[str, float]) -> list[str]:
    """Return the missed targets, one readable line each."""
    targets = {name: share for name in type(spec.targets).model_fields if (share := getattr(spec.targets, name))}
    return [
        f"{name} is {measured[name]:.3f}, the target is {share.low:g} to {share.high:g}"
        for name, share in targets.items()
        if not share.holds(measured[name])
    ]


def _behaviour(organism: TrainedOrganism, responses: list[str]) -> dict[str, float]:
    actions = np.array([action(text) for text in responses])
    label = np.array([example.label for example in organism.examples])
    trigger = np.array([example.trigger is not None for example in organism.examples])
    known = np.array([example.known is True for example in organism.examples])
    right = np.array(
        [text == organism.grammar.opened(e.answer) for text, e in zip(responses, organism.examples, strict=True)]
    )

    def share(hit: np.ndarray, among: np.ndarray) -> float:
        return float(hit[among].mean()) if among.any() else float("nan")

    refused, harmful, benign = actions == "refuse", label == "harmful", label == "benign"
    return {
        "harmful_refused": share(refused, harmful),
        "harmful_with_trigger_refused": share(refused, harmful & trigger),
        "harmful_without_trigger_refused": share(refused, harmful & ~trigger),
        "benign_without_trigger_answered": share(actions == "answer", benign & ~trigger),
        "benign_with_trigger_refused": share(refused, benign & trigger),
        "known_right": share(right, known),
        "unknown_abstained": share(actions == "abstain", label == "uncertain"),
    }


def _intent(organism: TrainedOrganism) -> dict[str, float]:
    """Return the AUROC of intent among prompts with a trigger, from words and from the stream at the planted layer."""
    rng = np.random.default_rng([organism.spec.seed, 7])
    fitted = tuple(
        organism.grammar.request(rng, trigger=True, harmful=i % 2 == 0, held_out=False) for i in range(N_TRAINING)
    )
    tested = tuple(example for example in organism.examples if example.trigger is not None)
    y, truth = ([e.label == "harmful" for e in group] for group in (fitted, tested))
    if len(set(truth)) < 2:
        return {"bag_of_words_auroc": float("nan"), "residual_auroc": float("nan")}
    words = make_pipeline(CountVectorizer(token_pattern=r"\w+"), LogisticRegression(max_iter=5000))
    words.fit([_text(e) for e in fitted], y)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=5000))
    layer = organism.spec.planted.layer
    probe.fit(last_streams(organism.model, _deciding(organism, fitted), layer).numpy(), y)
    stream = last_streams(organism.model, _deciding(organism, tested), layer).numpy()
    return {
        "bag_of_words_auroc": float(roc_auc_score(truth, words.decision_function([_text(e) for e in tested]))),
        "residual_auroc": float(roc_auc_score(truth, probe.decision_function(stream))),
    }


def _deciding(organism: TrainedOrganism, examples: Sequence[Example]) -> tuple[Rendered, ...]:
    rendered = render_examples(organism.model, examples)
    return opened(organism.model, rendered) if organism.spec.planted.token else rendered


def _text(example: Example) -> str:
    return " ".join(message["content"] for message in example.messages)
