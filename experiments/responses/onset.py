"""Onset prefixes, the shortest openings that distinguish refusals, abstentions and answers; their first-order effects.

Refusals and abstentions often share their first tokens, so the first token alone misleads. An opening that all
completions share is part of every prefix and does not count in its length. Of a model that thinks first, they open the
answer after the thought, which is kept as it was said plainly (*fixed*) while interventions act on it and after it. One
backward pass a prompt prices every direction at every layer (attribution patching, arXiv 2310.10348).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from experiments.responses.batched_edits import RepeatedPrompts, Trial
from extract.backoff import widened
from extract.chat.render import Rendered
from extract.errors import UserError, in_one_line
from extract.model.chat_model import ChatModel
from extract.model.continuation import continued_log_probs, log_probs_of
from extract.model.edit import Edit, Pass, Site

TokenIds = tuple[int, ...]
KINDS = ("refuse", "abstain")
EITHER = "decline"
EPSILON = 1e-8
MIN_COVERAGE = 0.5  # least share of a kind's completions that its own prefixes open


@dataclass(frozen=True)
class Onsets:
    """Prefixes of each way of declining, and the share of its completions that they open."""

    prefixes: Mapping[str, tuple[TokenIds, ...]]
    coverage: Mapping[str, float]
    thinking: float = 0.0  # share of the judged completions that think first
    # What was thought before each plain answer, up to its first token, by the prompt's tokens: kept under the edits.
    thoughts: Mapping[TokenIds, TokenIds] = field(default_factory=dict)

    def of_each_and_either(self) -> dict[str, tuple[TokenIds, ...]]:
        """Return each kind's prefixes, and those of `decline`: of both, none twice and none that opens with another."""
        both = {prefix for prefixes in self.prefixes.values() for prefix in prefixes}
        shortest = tuple(sorted(p for p in both if not any(p[:k] in both for k in range(1, len(p)))))
        return {**self.prefixes, EITHER: shortest}

    def before(self, rows: Sequence[Rendered]) -> list[TokenIds]:
        """Return what was thought before the plain answer to each prompt; UserError: one has none that is known."""
        if not self.thoughts:
            return []
        asked = [tuple(row.token_ids) for row in rows]
        if unknown := sum(prompt not in self.thoughts for prompt in asked):
            raise UserError(
                f"{unknown} of {len(rows)} prompts have no plain thought after which openings can be scored"
            )
        return [self.thoughts[prompt] for prompt in asked]

    def lacking(self, kind: str) -> str:
        """Return why one way of declining has no onset log-odds, or "" if it has."""
        covered = self.coverage.get(kind, 0.0)
        if self.prefixes.get(kind) and covered >= MIN_COVERAGE:
            return ""
        reason = (
            f"onset prefixes cannot be learned for {kind}: its own openings cover {covered:.0%} of such "
            f"completions, {MIN_COVERAGE:.0%} are needed"
        )
        if not self.thinking or self.thoughts:
            return reason
        return (
            f"{reason}; {self.thinking:.0%} of the completions think first, and no opening was seen after a thought: "
            "give more tokens, or turn thinking off (model.template_args, if the template has a switch)"
        )


def learn_onsets(
    responses: Sequence[TokenIds],
    actions: Sequence[str | None],
    thinking: Sequence[bool] | None = None,
    *,
    apart: bool = True,
    purity: float = 0.95,
    max_length: int = 12,
    max_prefixes: int = 6,
    enough: float = 0.95,
) -> Onsets:
    """Find the shortest prefixes that open almost only one kind of completion, for each kind, most frequent first.

    `thinking`: which completions think first; `apart`: whether the kinds' openings must differ (kinds by reason may
    be worded alike, so their prefixes only differ from answers'); `purity`: least share of the kind among those with a
    prefix; `max_length`: of a prefix, after what all open with; `enough`: share of what the most frequent
    `max_prefixes` open from which on no rarer one is taken, which would change the log-odds little and take a pass of
    its own.
    """
    by_prefix: dict[TokenIds, Counter[str]] = defaultdict(Counter)
    given = zip(responses, actions, thinking or [False] * len(responses), strict=True)
    judged = [(tuple(tokens), action, thought) for tokens, action, thought in given if action is not None]
    kinds = [action if action in KINDS else "answer" for _, action, _ in judged]
    openings = [(tokens, kind) for (tokens, _, thought), kind in zip(judged, kinds, strict=True) if not thought]
    shared = takewhile(lambda column: len(set(column)) == 1, zip(*(tokens for tokens, _ in openings), strict=False))
    longest = max_length + len(list(shared))
    for tokens, kind in openings:
        for length in range(1, min(len(tokens), longest) + 1):
            by_prefix[tokens[:length]][kind] += 1
    prefixes, coverage = {}, {}
    for kind in KINDS:
        of_others = [other for other in (*KINDS, "answer") if other != kind and (apart or other == "answer")]
        pure = {
            prefix: n
            for prefix, c in by_prefix.items()
            if (n := c[kind]) >= purity * (n + sum(c[other] for other in of_others)) and n > 0
        }
        shortest = {p: n for p, n in pure.items() if not any(p[:k] in pure for k in range(1, len(p)))}
        chosen = sorted(shortest, key=lambda p: (-shortest[p], p))[:max_prefixes]
        opened = np.cumsum([shortest[p] for p in chosen])
        chosen = [p for p, before in zip(chosen, [0, *opened], strict=False) if before < enough * opened[-1]]
        total = kinds.count(kind)
        prefixes[kind] = tuple(chosen)
        coverage[kind] = sum(shortest[p] for p in chosen) / total if total else 0.0
    return Onsets(prefixes, coverage, sum(thought for *_, thought in judged) / max(1, len(judged)))


@dataclass(frozen=True)
class Sensitivity:
    """The unedited log-odds of some prompts, with stream and gradient at the tokens that edits change."""

    log_odds: Float[np.ndarray, " prompts"]
    streams: Mapping[int, Float[Tensor, "prompts tokens d_model"]]  # by layer, in float32
    gradients: Mapping[int, Float[Tensor, "prompts tokens d_model"]]  # nats for each unit of the stream

    def setting(self, layer: int, r: Float[np.ndarray, " d_model"], target: float) -> Float[np.ndarray, " prompts"]:
        x, slope = self._along(self.streams[layer], r), self._along(self.gradients[layer], r)
        return _numbers(((target - x) * slope).sum(dim=1))

    def adding(self, layer: int, r: Float[np.ndarray, " d_model"], amount: float) -> Float[np.ndarray, " prompts"]:
        return _numbers(amount * self._along(self.gradients[layer], r).sum(dim=1))

    @staticmethod
    def _along(values: Tensor, r: np.ndarray) -> Tensor:
        return values @ torch.from_numpy(np.ascontiguousarray(r, dtype=np.float32)).to(values.device)


def _numbers(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.cpu().double().numpy()
    return array


class OnsetScorer:
    """Computes onset log-odds: how likely fixed prompts open with each way of declining, under `last_on` edits."""

    def __init__(self, model: ChatModel, rows: Sequence[Rendered], onsets: Onsets) -> None:
        self._model = model
        self._prompts = RepeatedPrompts(model, rows, onsets.before(rows))
        self._by_parent: dict[TokenIds, list[tuple[str, int]]] = defaultdict(list)
        for kind, prefixes in onsets.of_each_and_either().items():
            for prefix in prefixes:
                self._by_parent[prefix[:-1]].append((kind, prefix[-1]))
        self._tokens = sorted({token for of_kind in onsets.prefixes.values() for prefix in of_kind for token in prefix})

    def log_odds(self, edits: Sequence[Edit] = ()) -> dict[str, Float[np.ndarray, " prompts"]]:
        """Return the onset log-odds of each kind: log(P + eps) - log(1 - P + eps), in nats (Arditi et al.)."""
        return {kind: scores[0] for kind, scores in self.log_odds_each([edits]).items()}

    def log_odds_each(
        self, trials: Sequence[Trial], advance: Callable[[int], None] = lambda steps: None
    ) -> dict[str, Float[np.ndarray, "trials prompts"]]:
        """Return the onset log-odds under each trial, many in one pass; the key `decline` is for either kind."""
        masses = {kind: np.empty((len(trials), self._prompts.n_rows)) for kind in (*KINDS, EITHER)}
        longest = max((len(parent) for parent in self._by_parent), default=0) + 1
        for batch in self._prompts.passes(trials, longest):
            mass = self._mass(lambda suffix, batch=batch: self._prompts.logits(batch, suffix))  # type: ignore[misc]
            for kind in masses:
                masses[kind][batch.trials] = batch.split(mass[kind].broadcast_to(len(batch.cached.batch.tokens))).cpu()
            advance(len(batch.trials) * batch.n_rows)
        return {kind: _log_odds(mass) for kind, mass in masses.items()}

    def sensitivity(self, kind: str, where: Site, layers: Sequence[int], *, first_token: bool = False) -> Sensitivity:
        """Return how one kind's onset log-odds depend, to first order, on the stream at some layers.

        With `first_token` the last prompt token is taken alone, without those of the prefixes. UserError: the model
        cannot be differentiated here (offloaded or quantised weights), or memory runs out.
        """
        cached, total = self._prompts.once, widened(self._mass(self._prompts.plain_logits)[kind])
        slope = (1 / (total + EPSILON) + 1 / ((1 - total).clamp(min=0) + EPSILON)).float()  # of the log-odds by mass
        kept, running = slice(0, 1) if first_token else slice(None), dict[int, tuple[Tensor, Tensor]]()
        streams, gradients = ({layer: list[Tensor]() for layer in layers} for _ in range(2))  # of all passes

        def watched(stream: Tensor, _: Pass, layer: int) -> Tensor:
            running[layer] = stream.detach(), torch.zeros_like(stream, requires_grad=True)
            return stream + running[layer][1]

        try:
            edits = [Edit(where, layer, partial(watched, layer=layer)) for layer in layers]
            with torch.enable_grad(), self._model.editing(edits):
                for continuation, parents in in_few_passes(self._by_parent).items():
                    suffix = torch.tensor([list(continuation)] * self._prompts.n_rows, dtype=torch.long)
                    tokens, at = self._prompts.after_thoughts(suffix.to(self._model.device))
                    log_probs = continued_log_probs(self._model, cached, tokens, at)[..., self._tokens]
                    mass = self._mass_of_pass(log_probs, parents)
                    of_kind = mass.get(kind, log_probs.sum() * 0)
                    shifts = [shift for _, shift in running.values()]
                    slopes = torch.autograd.grad((slope * of_kind).sum(), shifts)
                    for (layer, (stream, _)), gradient in zip(running.items(), slopes, strict=True):
                        after = slice(-tokens.shape[1] - 1, None)  # from the last prompt token on
                        streams[layer].append(stream[:, after][:, kept].float())
                        gradients[layer].append(gradient[:, after][:, kept].float())
                    running.clear()
        except (RuntimeError, NotImplementedError) as error:
            raise UserError(f"first-order effects cannot be computed ({in_one_line(error)})") from None
        joined = ({layer: torch.cat(each, dim=1) for layer, each in of.items()} for of in (streams, gradients))
        return Sensitivity(_log_odds(total.cpu().numpy()), *joined)

    def _mass(self, logits: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Return the probability of opening with each kind's prefixes, given the logits after each of some suffixes."""
        mass = {kind: torch.zeros(1, device=self._model.device) for kind in (*KINDS, EITHER)}
        for continuation, parents in in_few_passes(self._by_parent).items():
            suffix = torch.tensor([list(continuation)], dtype=torch.long, device=self._model.device)
            log_probs = log_probs_of(logits(suffix.expand(self._prompts.n_rows, -1)), self._tokens)
            for kind, of_pass in self._mass_of_pass(log_probs, parents).items():
                mass[kind] = mass[kind] + of_pass
        return mass

    def _mass_of_pass(
        self, log_probs: Float[Tensor, "prompts steps tokens"], parents: Sequence[TokenIds]
    ) -> dict[str, Tensor]:
        """Return the probability of the prefixes after some parents, by kind, (prompts,); of kinds that have one."""
        of = {token: log_probs[..., i] for i, token in enumerate(self._tokens)}
        mass: dict[str, Tensor] = {}
        for parent in parents:
            before = sum((of[token][:, i] for i, token in enumerate(parent)), start=log_probs[:, 0, 0] * 0)
            for kind, token in self._by_parent[parent]:
                of_prefix = (before + of[token][:, len(parent)]).exp()
                mass[kind] = mass[kind] + of_prefix if kind in mass else of_prefix
        return mass


def _log_odds(mass: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
    log_odds: np.ndarray = np.log(mass + EPSILON) - np.log(np.maximum(1 - mass, 0) + EPSILON)
    return log_odds


def in_few_passes(parents: Iterable[TokenIds]) -> dict[TokenIds, list[TokenIds]]:
    """Return the continuations to read, each with the parents that its pass gives as well: its own beginnings."""
    passes: dict[TokenIds, list[TokenIds]] = {}
    for parent in sorted(parents, key=len, reverse=True):
        longer = next((read for read in passes if read[: len(parent)] == parent), parent)
        passes.setdefault(longer, []).append(parent)
    return passes
