"""Measures side effects of interventions: KL of answers, cross-entropy of plain text, outcomes of wrapped requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from jaxtyping import Float
from torch.nn.functional import cross_entropy

from experiments.responses.batched_edits import MOST_LOGITS
from experiments.responses.divergence import ForcedResponses, summary
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.config import RunConfig
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, Key, Outcomes, mean
from experiments.side_effects.judge import WRAPPED, choose_prompts
from experiments.side_effects.results import AnswerDivergence, PlainText, TokenCosts
from experiments.side_effects.texts import load_passages, load_wraps
from extract.backoff import TokenBudget
from extract.chat.render import render
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from probes.statistics.seeds import named_rng

Interventions = Mapping[str, Sequence[Edit]]
MOST_TOKENS = 256  # of a passage; later tokens are not read
SINGLE = ("maximum", "first_token", "worst_step")  # summaries of KL without an interval


def token_costs(loaded: LoadedRun, interventions: Interventions) -> dict[str, TokenCosts]:
    """Measure KL and plain text under edits of scope `last_on`, each against the intervention 'none' without edits."""
    if not interventions:
        return {}
    kl, prose = _kl(loaded, interventions), _plain_text(loaded, interventions)
    return {name: TokenCosts(kl=kl[name], plain_text=prose[name]) for name in interventions}


def wrapped_outcomes(loaded: LoadedRun, interventions: Interventions) -> dict[Key, Outcomes]:
    """Return the outcomes of wrapped harmful prompts under each intervention; a wrap is a condition."""
    wraps = load_wraps(loaded.config.dissociate.wraps)
    chosen = {name: choose_prompts(loaded, name, wrap) for name, wrap in wraps.items()}
    asked = [prompt for each in chosen.values() for prompt in each.prompts]
    rendered = [render(loaded.model.tokenizer, prompt) for prompt in asked]
    completer, outcomes = replace(loaded.completer, prompts=asked, rendered=rendered), dict[Key, Outcomes]()
    with loaded.reporter.task("wrapped harmful prompts", len(asked) * len(interventions)) as advance:
        settings = [Setting(edits) for edits in interventions.values()]
        completed = completer.complete_each(range(len(asked)), settings, advance)
    for intervention, completions in zip(interventions, completed, strict=True):
        following = iter(completions)
        for name, each in chosen.items():
            own = list(islice(following, len(each.rows)))
            outcomes[WRAPPED + name, intervention] = Outcomes.completed(each.rows, own, loaded.prompts)
    return outcomes


def cost(config: RunConfig, n_harmful: int, n_interventions: int) -> tuple[int, int]:
    """Return the most completions of wrapped prompts, and texts (answers, passages) that are read; 'none' counts."""
    most = config.dissociate.n_side_effects
    completions = n_interventions * len(load_wraps(config.dissociate.wraps)) * min(most, n_harmful)
    passages = min(most, len(load_passages(config.dissociate.plain_text)))
    return completions, n_interventions * (most + passages)


def _kl(loaded: LoadedRun, interventions: Interventions) -> dict[str, AnswerDivergence]:
    """Measure KL on answered benign test prompts, over the first tokens of the model's own plain answers."""
    rows, k = _drawn(loaded, loaded.behaviour.answered_benign("test")), loaded.config.dissociate.kl_tokens
    if not len(rows):
        return {name: AnswerDivergence.of(mean([], rows)) for name in interventions}
    prompts = [loaded.rendered[i] for i in rows]
    responses = [loaded.completions[i].token_ids for i in rows]
    trials = list(interventions.values())
    with loaded.reporter.task("KL on benign answers", len(rows) * len(trials)) as advance:
        nats, has_step = ForcedResponses(loaded.model, prompts, responses, k).divergences(trials, advance)
    groups = loaded.corpus.groups[rows]

    def divergence(of_trial: np.ndarray) -> AnswerDivergence:
        single = {name: getattr(summary(of_trial, has_step), name) for name in SINGLE}
        finite = {name: value if np.isfinite(value) else None for name, value in single.items()}
        return AnswerDivergence.of(mean([row[k] for row, k in zip(of_trial, has_step, strict=True)], groups), **finite)

    return {name: divergence(of_trial) for name, of_trial in zip(interventions, nats, strict=True)}


def _plain_text(loaded: LoadedRun, interventions: Interventions) -> dict[str, PlainText]:
    """Measure cross-entropy on plain prose; every passage is its own group."""
    passages = load_passages(loaded.config.dissociate.plain_text)
    rows = _drawn(loaded, np.arange(len(passages)))
    tokens = encode(loaded.model, [passages[row] for row in rows])
    nats = {name: cross_entropies(loaded.model, tokens, edits) for name, edits in interventions.items()}
    uniform = {"uniform": float(np.log(loaded.model.model.config.get_text_config().vocab_size))}
    shares = {name: mean(now, rows, None if name == NOTHING else nats[NOTHING]) for name, now in nats.items()}
    return {name: PlainText.of(share, **uniform) for name, share in shares.items()}


def _drawn(inputs: RunInputs, rows: np.ndarray) -> np.ndarray:
    """Draw at most `n_side_effects` of some rows and return them sorted."""
    rng = named_rng(inputs.config.seed, "side effects")
    return np.sort(rng.permutation(rows)[: inputs.config.dissociate.n_side_effects])


# -- plain text --------------------------------------------------------------------------------------------------------


def encode(model: ChatModel, passages: Sequence[str]) -> list[list[int]]:
    """Tokenise passages as plain text with the tokenizer's own special tokens, cut at the model's maximum length."""
    longest = getattr(model.model.config.get_text_config(), "max_position_embeddings", None) or MOST_TOKENS
    return [list(model.tokenizer(text)["input_ids"][: min(longest, MOST_TOKENS)]) for text in passages]


def cross_entropies(
    model: ChatModel, passages: Sequence[Sequence[int]], edits: Sequence[Edit] = ()
) -> list[Float[np.ndarray, " tokens"]]:
    """Return the cross-entropy of every token but the first of each passage, given the tokens before it, in nats.

    Edits of scope `last_on` cover all tokens, because the first token counts as the end of a prompt. Passages are
    padded on the right, where no token attends to the padding; the padding has no cross-entropy.
    """

    def work(rows: list[int]) -> list[np.ndarray]:
        batch = replace(model.pad([passages[row] for row in rows], "right"), prompt_length=1)
        with model.editing(edits):
            logits = model.logits(batch)[:, :-1]
        each = cross_entropy(logits.float().mT, batch.tokens[:, 1:].to(logits.device), reduction="none")
        nats = each.cpu().double().numpy()
        return [values[: len(passages[row]) - 1] for row, values in zip(rows, nats, strict=True)]

    vocabulary = int(model.model.config.get_text_config().vocab_size)
    return TokenBudget(max(1, MOST_LOGITS // vocabulary)).map([len(row) for row in passages], work)
