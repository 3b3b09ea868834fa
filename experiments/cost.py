"""`--dry-run`: what a run would do, step by step, at most: prompts read, completions, tokens, bytes, a rough time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import side_effects
from experiments.behaviour import KINDS
from experiments.config import RunConfig
from experiments.onset_null import Picker
from experiments.variant import VARIANTS
from experiments.writing import write_layers

KINDS_OF_EDIT = 3  # ablation, addition, and a random direction's ablation
ONSET_TOKENS = 6  # of a pass that goes on from a remembered prompt: the last token and an onset prefix


@dataclass(frozen=True)
class Step:
    """One step of a run: forward passes of a prompt each, so many tokens long, and completions."""

    name: str
    passes: int = 0
    tokens_a_pass: float = 0.0
    completions: int = 0


@dataclass(frozen=True)
class Size:
    """What a run's cost follows from."""

    prompts: int
    test: int
    harmful_test: int
    prompt_tokens: float  # of a prompt, on average
    n_layers: int
    positions: int  # prompt positions from the end of the instruction on
    questions: int = 0  # with a known answer, or uncertain


def steps(config: RunConfig, size: Size, until: str) -> list[Step]:
    """List the steps up to a stage, each at its most: as if every prompt that may decline did."""
    names = ("extract", "respond", "triggers", "probe", "dissociate", "gate_open", "steer")
    wanted = names[: names.index(until) + 1] if until in names else names
    if until == "uncertainty":
        wanted = ("respond", "uncertainty")
    elif until not in names and config.uncertainty.samples:
        wanted = (*wanted, "uncertainty")
    listed: dict[str, Callable[[RunConfig, Size], list[Step]]] = {
        "extract": lambda c, s: [Step("activations", s.prompts, s.prompt_tokens)],
        "respond": lambda c, s: [Step("plain completions", completions=s.prompts)],
        "probe": _probe,
        "dissociate": _dissociate,
        "triggers": lambda c, s: [Step("the last turn alone, no system line", completions=min(200, s.prompts))],
        "gate_open": lambda c, s: [Step("declined prompts with the gate open (remembered)")],
        "uncertainty": lambda c, s: [Step("sampled answers", completions=c.uncertainty.drawn.samples * s.questions)],
        "steer": lambda c, s: [Step("completions with the dials", completions=s.test)],
    }
    return [step for name in wanted for step in listed[name](config, size)]


def _candidates(config: RunConfig, size: Size) -> int:
    chosen = config.dissociate.positions
    n_layers = len(config.extract.layers or range(size.n_layers))
    deepest = len(write_layers(size.n_layers, config.dissociate.deepest))
    return min(n_layers, deepest) * (len(chosen) if chosen else size.positions)


def _probe(config: RunConfig, size: Size) -> list[Step]:
    n = config.dissociate.n_selection
    tried = len(KINDS) * _candidates(config, size) * n
    return [
        Step("choosing write directions: onsets", 2 * tried, ONSET_TOKENS),
        Step("choosing write directions: KL", tried, config.dissociate.kl_tokens),
    ]


def _dissociate(config: RunConfig, size: Size) -> list[Step]:
    given = config.dissociate
    draws, onset = len(KINDS) * given.n_null_onset, len(KINDS) * given.n_onset
    generated = len(KINDS) * min(given.n_null_generation, given.n_null_onset) * onset
    tried = draws * _candidates(config, size) * Picker.N_SELECTION
    ways = len(KINDS) * (len(VARIANTS) + 1) if given.variants else 0
    besides = side_effects.cost(config, size.harmful_test, 1 + len(KINDS))
    return [
        Step("interventions on test prompts", completions=len(KINDS) * KINDS_OF_EDIT * size.test),
        Step("permuted-label null: bypass and induce", 2 * tried, ONSET_TOKENS),
        Step("permuted-label null: KL", tried, given.kl_tokens),
        Step("permuted-label null: onset effects", draws * onset, ONSET_TOKENS),
        Step("permuted-label null: completions", completions=generated),
        Step("other ways of ablating", ways * onset, ONSET_TOKENS, ways * (onset + given.n_onset)),
        Step("side effects", besides.texts_read, size.prompt_tokens + given.kl_tokens, besides.generations),
    ]  # fmt: skip


def tokens(listed: Sequence[Step], size: Size, max_new_tokens: int) -> int:
    """Return the tokens that all steps read and write, at most."""
    read = sum(step.passes * step.tokens_a_pass for step in listed)
    return int(read + sum(step.completions for step in listed) * (size.prompt_tokens + max_new_tokens))


def estimate(config: RunConfig, directory: Path, until: str) -> dict[str, Any]:
    """Say what a run would do: steps, tokens, bytes, and a rough time from the model's size."""
    import torch
    from transformers import AutoModelForCausalLM

    from experiments.corpus import divide
    from experiments.observation import questions
    from experiments.sources import read_prompts
    from extract.chat import position_names, render
    from extract.loading import load_tokenizer

    prompts, wanted, here = read_prompts(config.prompts, config.seed), config.model, config.extract
    shape, tokenizer = load_tokenizer(wanted.name, revision=wanted.revision, template=wanted.template)
    rendered = [render(tokenizer, prompt) for prompt in prompts]
    with torch.device("meta"):
        n_parameters = sum(p.numel() for p in AutoModelForCausalLM.from_config(shape).parameters())
    text = shape.get_text_config()
    roles = position_names(rendered, trigger=any(p.trigger for p in prompts))
    corpus = divide(prompts, config.prompts, config.seed)
    test = corpus.within("test")
    size = Size(
        len(prompts), int(test.sum()), int((corpus.harmful & test).sum()),
        sum(len(row.token_ids) for row in rendered) / len(rendered), text.num_hidden_layers,
        sum(name == "inst_last" or name.startswith("post_") for name in roles), len(questions(prompts)),
    )  # fmt: skip
    chosen = here.store_dtype if here.store_dtype != "auto" else wanted.dtype
    width = 4 if chosen == "float32" or (chosen == "auto" and not torch.cuda.is_available()) else 2
    names = here.positions or roles
    stored = len(here.layers or range(text.num_hidden_layers)) * (len(names) + here.response_tokens)
    stored = 0 if until == "uncertainty" else stored
    listed = steps(config, size, until)
    n_completions, responses = sum(step.completions for step in listed), len(prompts) * here.response_tokens
    total = tokens(listed, size, config.generate.max_new_tokens) + responses
    rate = 2e14 if torch.cuda.is_available() else 5e10  # sustained FLOP/s assumed
    return {
        "would run": f"stages up to {until}; what {directory} already holds unchanged is skipped",
        "model": wanted.name,
        "parameters": n_parameters,
        "prompts": len(prompts),
        "prompt tokens": int(size.prompts * size.prompt_tokens),
        "steps, at most": {s.name: _described(s) for s in listed},
        "completions, at most": n_completions,
        "generated tokens, at most": n_completions * config.generate.max_new_tokens + responses,
        "tokens, at most": total,
        "activations on disk, bytes": stored * len(prompts) * text.hidden_size * width,
        "rough time": f"{2 * n_parameters * total / rate / 60:.1f} minutes (compute alone, at {rate:.0e} FLOP/s)",
        "directory": str(directory),
    }


def _described(step: Step) -> str:
    parts = [f"{step.completions:,} completions"] if step.completions else []
    parts += [f"{step.passes:,} passes of {step.tokens_a_pass:.0f} tokens"] if step.passes else []
    return " and ".join(parts) or "nothing"
