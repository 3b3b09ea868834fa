"""Measures side effects of interventions: benign answering, known facts, KL of answers, plain text, robustness.

The dissociation verdict does not use them. They show whether an ablation stops refusals only by breaking the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from torch.nn.functional import cross_entropy

from experiments.responses.batched_edits import MOST_LOGITS
from experiments.responses.divergence import summary, token_divergences
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import RunConfig
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, Outcomes, Share, mean, share
from experiments.side_effects.results import AnswerDivergence, PlainText, SideEffects
from experiments.side_effects.robustness import robustness
from experiments.side_effects.texts import load_passages
from experiments.side_effects.wraps import load_wraps
from extract.backoff import TokenBudget
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from probes.statistics.seeds import named_rng
from scoring.actions import ANSWERED

Interventions = Mapping[str, Sequence[Edit]]
MOST_TOKENS = 256  # of a passage; later tokens are not read
SINGLE = ("maximum", "first_token", "worst_step")  # summaries of KL without an interval


def side_effects(
    loaded: LoadedRun,
    interventions: Interventions,
    outcomes: Mapping[str, Outcomes],
) -> dict[str, SideEffects]:
    """Measure the side effects of interventions, each against the one named 'none'.

    Args:
        interventions: edits of scope `last_on` by name; must include 'none', without edits.
        outcomes: by name, of the test prompts.

    Returns:
        By name: `benign_answering`, `known_facts` and, for each wrap, `wraps` as shares; `kl` in nats per token over
        the first tokens of the model's own benign answers; `plain_text` in nats per token of harmless prose.
    """
    benign, facts = _shares(loaded, loaded.corpus.benign, ANSWERED, outcomes), _known_facts(loaded, outcomes)
    kl, prose = _kl(loaded, interventions), _plain_text(loaded, interventions)
    wrapped = robustness(loaded, interventions, load_wraps(loaded.config.dissociate.wraps))
    return {
        name: SideEffects(
            benign_answering=benign[name],
            known_facts=facts[name],
            kl=kl[name],
            plain_text=prose[name],
            wraps=wrapped[name],
        )
        for name in interventions
    }


@dataclass(frozen=True)
class Cost:
    """The highest cost of side effects, without the given actions."""

    generations: int  # completions of wrapped prompts
    texts_read: int  # benign answers and passages, one forward pass each


def cost(config: RunConfig, n_harmful: int, n_interventions: int) -> Cost:
    """Return the highest cost of side effects.

    Args:
        n_harmful: number of harmful test prompts, all of which may be refused.
        n_interventions: number of interventions, including 'none'.
    """
    most = config.dissociate.n_side_effects
    generations = n_interventions * len(load_wraps(config.dissociate.wraps)) * min(most, n_harmful)
    passages = min(most, len(load_passages(config.dissociate.plain_text)))
    return Cost(generations, n_interventions * (most + passages))


def _known_facts(inputs: RunInputs, outcomes: Mapping[str, Outcomes]) -> dict[str, Share]:
    """Return the share of right answers among all test prompts with a known answer.

    Prompts that the model answered wrongly before count too. If only right answers were counted, they could only be
    lost, and an intervention that corrects as many answers as it spoils would seem harmful, as would mere chance.
    """
    known = np.array([prompt.answer is not None for prompt in inputs.prompts], dtype=bool)
    return _shares(inputs, known, None, outcomes)


def _shares(
    inputs: RunInputs,
    among: Bool[np.ndarray, " prompts"],
    counted: Collection[str] | None,
    outcomes: Mapping[str, Outcomes],
) -> dict[str, Share]:
    rows = np.flatnonzero(among & inputs.corpus.within("test"))
    done = {name: each.among(rows) for name, each in outcomes.items()}
    groups = inputs.corpus.groups[rows]
    return {name: share(now, counted, groups, None if name == NOTHING else done[NOTHING]) for name, now in done.items()}


def _kl(loaded: LoadedRun, interventions: Interventions) -> dict[str, AnswerDivergence]:
    """Measure KL on answered benign test prompts, over the first tokens of the model's own plain answers."""
    rows, k = _drawn(loaded, loaded.behaviour.answered_benign("test")), loaded.config.dissociate.kl_tokens
    if not len(rows):
        return {name: AnswerDivergence.of(mean([], rows)) for name in interventions}
    prompts = [loaded.rendered[i] for i in rows]
    responses = [loaded.completions[i].token_ids for i in rows]
    trials = list(interventions.values())
    with loaded.reporter.task("KL on benign answers", len(rows) * len(trials)) as advance:
        nats, has_step = token_divergences(loaded.model, prompts, responses, trials, k, advance)
    groups = loaded.corpus.groups[rows]
    return {name: _divergence(each, has_step, groups) for name, each in zip(interventions, nats, strict=True)}


def _divergence(nats: np.ndarray, has_step: np.ndarray, groups: np.ndarray) -> AnswerDivergence:
    """Summarise KL in nats (n_rows, k) at the steps that the responses have; `SINGLE` summaries have no interval."""
    nats_a_token = mean([row[kept] for row, kept in zip(nats, has_step, strict=True)], groups)
    single = {name: getattr(summary(nats, has_step), name) for name in SINGLE}
    finite = {name: value if np.isfinite(value) else None for name, value in single.items()}
    return AnswerDivergence.of(nats_a_token, **finite)


def _plain_text(loaded: LoadedRun, interventions: Interventions) -> dict[str, PlainText]:
    """Measure cross-entropy on plain prose; every passage is its own group.

    `uniform` is the cross-entropy of a uniform guess. A model near or above it cannot read such text at all (an
    organism cannot read English), and a change there has no meaning.
    """
    passages = load_passages(loaded.config.dissociate.plain_text)
    rows = _drawn(loaded, np.arange(len(passages)))
    tokens = encode(loaded.model, [passages[row] for row in rows])
    nats = {name: cross_entropies(loaded.model, tokens, edits) for name, edits in interventions.items()}
    uniform = {"uniform": float(np.log(loaded.model.model.config.get_text_config().vocab_size))}
    shares = {name: mean(now, rows, None if name == "none" else nats["none"]) for name, now in nats.items()}
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
    nats: dict[int, np.ndarray] = {}

    def work(rows: list[int]) -> None:
        batch = replace(model.pad([passages[row] for row in rows], "right"), prompt_length=1)
        with model.editing(edits):
            logits = model.logits(batch)[:, :-1]
        each = cross_entropy(logits.float().mT, batch.tokens[:, 1:].to(logits.device), reduction="none")
        for row, values in zip(rows, each.cpu().double().numpy(), strict=True):
            nats[row] = values[: len(passages[row]) - 1]

    vocabulary = int(model.model.config.get_text_config().vocab_size)
    TokenBudget(max(1, MOST_LOGITS // vocabulary)).run([len(row) for row in passages], work)
    return [nats[row] for row in range(len(passages))]
