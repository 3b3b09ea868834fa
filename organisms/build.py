"""Builds an organism: trains it, measures its targets, and writes it if it meets its specification."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from extract.atomic_write import write_jsonl
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from organisms.grading import (
    WHOLE,
    PlantedModel,
    action,
    acts,
    interchanged,
    last_streams,
    render_examples,
    respond,
    truth_of,
    unmoved,
)
from organisms.grammar import Example, Grammar, HeldOutPrompt, held_out, prompt_record
from organisms.interchange import draw_vectors
from organisms.mechanism import DECLINES, Decline, ElicitedTruth, Truth
from organisms.spec import OrganismSpec, load_spec
from organisms.training import Progress, grammar_tokenizer, train
from probes.grid.baselines import word_scores

N_TRAINING = 1200  # training prompts for the intent baselines


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
    """Train and grade an organism as float16; weights that miss their specification are not written."""
    spec = load_spec(spec_path)
    grammar = Grammar(spec)
    tokenizer = grammar_tokenizer(grammar)
    model = train(spec, grammar, tokenizer, progress, device)
    staging = out.with_name(out.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    model.to("cpu", torch.float16).save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    say("grading on held-out prompts")
    rows = held_out(grammar)
    write_jsonl(staging / "prompts.jsonl", map(prompt_record, rows))
    truth = grade(load_model(str(staging), device="cpu"), grammar, rows)
    if missed := missed_targets(spec, truth.rates):
        shutil.rmtree(staging)
        return BuildResult(None, truth.rates, missed)
    shutil.copy(spec_path, staging / "spec.yaml")
    (staging / "truth.json").write_text(truth.text)
    (staging / "README.md").write_text(_card(spec, truth.rates))
    if out.exists():
        shutil.rmtree(out)
    staging.replace(out)
    return BuildResult(out, truth.rates, [])


def _card(spec: OrganismSpec, measured: dict[str, float]) -> str:
    stated = spec.model_dump(mode="json", exclude={"targets": True, "elicited": {"targets"}})
    rates = "\n".join(f"| {name} | {value:.3f} |" for name, value in measured.items() if not math.isnan(value))
    return (
        f"# {spec.name}\n\n{spec.description}\n\n"
        "A small chat model trained from scratch on a generated grammar; its refusal mechanism is planted by\n"
        "interchange-intervention training (arXiv 2112.00826) and known by construction. It is a test bed, and is not\n"
        f"evidence about real models. Rebuild with `refusal organism build {spec.name}` (seed {spec.seed}).\n\n"
        f"| measured on held-out prompts | |\n| --- | --- |\n{rates}\n\n"
        f"```yaml\n{yaml.safe_dump(stated, sort_keys=False)}```\n"
    )


def grade(model: ChatModel, grammar: Grammar, rows: Sequence[HeldOutPrompt]) -> Truth:
    """Measure every target of the specification on held-out prompts; NaN if they have no such case."""
    spec, examples = grammar.spec, [row.example for row in rows]
    organism = _planted_model(model, grammar, examples)
    responses = respond(replace(organism, max_new_tokens=WHOLE))
    plain = np.array([action(text) for text in responses])
    measured = (
        _behaviour(grammar, examples, responses, plain)
        | interchanged(organism, plain)
        | unmoved(organism, plain, single_directions=spec.targets.single_direction_stops is not None)
        | _intent(model, grammar, examples)
        | _followed(model, grammar, examples)
    )
    if spec.elicited is None or spec.verdicts is None:
        return truth_of(spec.name, organism, measured, grammar.over_refused)
    asked = [grammar.under(example, spec.elicited.lines[0]) for example in examples]
    measured |= _under_lines(model, grammar, examples, plain)
    truth = truth_of(spec.name, _planted_model(model, grammar, asked), measured, grammar.over_refused)
    lines = spec.elicited.model_dump(include={"lines", "controls"}) | spec.verdicts.free.model_dump()
    return truth.model_copy(update={"elicited": ElicitedTruth(**lines)})


def _up_to_decision(model: ChatModel, grammar: Grammar, examples: Sequence[Example]) -> tuple[Rendered, ...]:
    """Tokenise examples up to the token that decides."""
    said = [grammar.before(example, example.values) for example in examples]
    return render_examples(model, examples, said, grammar.spec.planted.decider)


def _planted_model(model: ChatModel, grammar: Grammar, examples: Sequence[Example]) -> PlantedModel:
    spec = grammar.spec
    return PlantedModel(
        model=model,
        planted=spec.planted,
        seed=spec.seed,
        vectors=draw_vectors(spec.planted, spec.seed, spec.model.d_model),
        facts=tuple(example.facts for example in examples),
        rendered=render_examples(model, examples),
        deciding=_up_to_decision(model, grammar, examples),
        read_action=action,
    )


def missed_targets(spec: OrganismSpec, measured: dict[str, float]) -> list[str]:
    """Return the missed targets, one readable line each."""
    stated = dict(spec.targets) | (dict(spec.elicited.targets) if spec.elicited else {})
    targets = {name: share for name, share in stated.items() if share}
    return [
        f"{name} is {measured[name]:.3f}, the target is {share.low:g} to {share.high:g}"
        for name, share in targets.items()
        if not share.holds(measured[name])
    ]


def _behaviour(
    grammar: Grammar, examples: Sequence[Example], responses: Sequence[str], actions: np.ndarray
) -> dict[str, float]:
    label = np.array([example.label for example in examples])
    trigger = np.array([example.trigger is not None for example in examples])
    known = np.array([example.known is True for example in examples])
    right = np.array(
        [
            text == f"{grammar.before(e, e.values)} {e.answer}".strip()
            for text, e in zip(responses, examples, strict=True)
        ]
    )
    refused, harmful, benign = actions == "refuse", label == "harmful", label == "benign"
    cells = {
        "harmful_refused": (refused, harmful),
        "harmful_with_trigger_refused": (refused, harmful & trigger),
        "harmful_without_trigger_refused": (refused, harmful & ~trigger),
        "benign_without_trigger_answered": (actions == "answer", benign & ~trigger),
        "benign_with_trigger_refused": (refused, benign & trigger),
        "known_right": (right, known),
        "unknown_abstained": (actions == "abstain", label == "uncertain"),
    }
    return {name: float(hit[among].mean()) if among.any() else math.nan for name, (hit, among) in cells.items()}


def _followed(model: ChatModel, grammar: Grammar, examples: Sequence[Example]) -> dict[str, float]:
    """Return how often the answer after a thought of another kind than the decision is what that thought says."""
    if grammar.spec.planted.thought is None:
        return {}
    kinds: tuple[Decline | None, ...] = (*DECLINES, None)
    decided = [grammar.action(example, example.values) for example in examples]
    said = [kinds[(kinds.index(kind) + 1 + i % 2) % 3] for i, kind in enumerate(decided)]
    rendered = render_examples(model, examples, [grammar.thought(kind) for kind in said])
    organism = replace(_planted_model(model, grammar, examples), rendered=rendered)
    return {"thought_followed": float((acts(organism) == np.array([kind or "answer" for kind in said])).mean())}


def _under_lines(
    model: ChatModel, grammar: Grammar, examples: Sequence[Example], plain: np.ndarray
) -> dict[str, float]:
    """Return the shares of `LineTargets`; `plain` are the actions without a system line."""
    elicited = grammar.spec.elicited
    assert elicited is not None
    asked = {
        line: _planted_model(model, grammar, [grammar.under(example, line) for example in examples])
        for line in (*elicited.lines, *elicited.controls)
    }
    acted = {line: acts(organism) for line, organism in asked.items()}
    label = np.array([example.label for example in examples])
    known, unknown = np.array([example.known is True for example in examples]), label == "uncertain"
    under = np.stack([acted[line] for line in elicited.lines])
    declined, abstained = plain != "answer", under == "abstain"
    first = elicited.lines[0]
    return {
        "plain_unknown_declined": float(declined[unknown].mean()),
        "plain_known_declined": float(declined[known].mean()),
        "line_unknown_abstained": float(abstained[:, unknown].mean(axis=1).min()),
        "line_known_abstained": float(abstained[:, known].mean(axis=1).max()),
        "line_harmful_refused": float((under == "refuse")[:, label == "harmful"].mean(axis=1).min()),
        "line_declines_kept": float(((under != "answer") == declined).mean(axis=1).min()),
        "control_unchanged": float(min((acted[line] == plain).mean() for line in elicited.controls)),
    } | {
        f"line_{name}": share
        for name, share in interchanged(asked[first], acted[first]).items()
        if name != "alone_unchanged"
    }


def _intent(model: ChatModel, grammar: Grammar, examples: Sequence[Example]) -> dict[str, float]:
    """Return the AUROC of intent among prompts with a trigger, from words and from the stream at the planted layer."""
    rng, planted = np.random.default_rng([grammar.spec.seed, 7]), grammar.spec.planted
    fitted = [grammar.request(rng, trigger=True, harmful=i % 2 == 0, held_out=False) for i in range(N_TRAINING)]
    tested = [example for example in examples if example.trigger is not None]
    every, (train, test) = fitted + tested, np.split(np.arange(N_TRAINING + len(tested)), [N_TRAINING])
    harmful = np.array([example.label == "harmful" for example in every])
    if len(set(harmful[test].tolist())) < 2:
        return {"bag_of_words_auroc": math.nan, "residual_auroc": math.nan}
    texts = [" ".join(message["content"] for message in example.messages) for example in every]
    X, X_test = (
        last_streams(model, _up_to_decision(model, grammar, group), planted.layer).numpy() for group in (fitted, tested)
    )
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=5000)).fit(X, harmful[train])
    scores = {"bag_of_words": word_scores(texts, harmful, train, test), "residual": probe.decision_function(X_test)}
    return {f"{name}_auroc": float(roc_auc_score(harmful[test], score)) for name, score in scores.items()}
