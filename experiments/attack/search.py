"""Greedy coordinate gradient (Zou et al. 2023, arXiv 2307.15043): a suffix's loss, its gradient, and the search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import logit
from torch import Tensor
from torch.nn.functional import pad, softplus

from experiments.attack.suffix import SuffixedRequests, Suffixes
from experiments.responses.batched_edits import RepeatedPrompts
from experiments.responses.onset import TokenIds, in_few_passes
from extract.backoff import widened
from extract.capture import gather
from extract.errors import UserError, in_one_line
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, continued_log_probs
from extract.model.edit import Edit, Pass, reader, site
from extract.progress import no_progress
from probes.direction import Locus
from steering.dial import Dial

Aim = Literal["evade", "trigger"]  # harmful requests answered, or benign ones refused
TOP = 256  # tokens of a place with the steepest gradient, from which candidates are drawn
ROUNDS = 4  # of drawing, where too few candidates survive
LEAST = 1e-7  # nats that a log-probability in float32 is below 0
FOOLED = 0.01  # nats: a search ends where its loss is below


class Objective:
    """The loss of a suffix: the log-loss of the wrong decision, in nats, as a mean over requests; 0 is fooled.

    The decision is to open with one of `prefixes` (none: not counted), and the gate of `dial` (None: not counted); with
    both, their losses are added. Where `cached`, the keys and values of the tokens before the suffix are computed once.
    """

    def __init__(
        self,
        model: ChatModel,
        requests: SuffixedRequests,
        start: Int[np.ndarray, " tokens"],
        aim: Aim,
        prefixes: Sequence[TokenIds] = (),
        dial: Dial | None = None,
        *,
        cached: bool = True,
    ) -> None:
        self._model, self._requests, self._aim, self._dial = model, requests, aim, dial
        self._ends: dict[TokenIds, list[int]] = defaultdict(list)
        for prefix in prefixes:
            self._ends[prefix[:-1]].append(prefix[-1])
        self._passes = in_few_passes(self._ends)
        self._rows = requests.rendered(start)  # any suffix has the same places
        heads = [replace(row, token_ids=head) for row, head in zip(self._rows, requests.heads, strict=True)]
        self.prompts = RepeatedPrompts(model, heads)
        if dial is not None and dial.read is not None:  # a mean over the request is read from its start
            own = (row.roles[dial.read.position] for row in self._rows)
            cached &= all(min(at) >= len(head) for at, head in zip(own, requests.heads, strict=True))
        if self.prompts.once.by_token or not cached:
            self.prompts.once = replace(self.prompts.once, by_token=False, cache=None)
        # the last token before the suffix is read again
        self.first = 1 if self.prompts.once.cache is not None else max(map(len, requests.heads))

    def losses(self, suffixes: Suffixes) -> Float[np.ndarray, " suffixes"]:
        """Return the loss of each suffix."""
        longest = max(map(len, self._passes), default=-1) + 1
        losses = np.empty(len(suffixes))
        with torch.inference_mode():
            for batch in self.prompts.passes([()] * len(suffixes), longest):
                times = len(batch.cached.batch.tokens) // len(self._rows)
                rows = np.resize(suffixes[batch.trials], (times, suffixes.shape[1])).repeat(len(self._rows), axis=0)
                losses[batch.trials] = batch.split(self.loss(batch.cached, rows)).mean(dim=1).cpu().numpy()
        return losses

    def gradient(self, suffix: Int[np.ndarray, " tokens"]) -> Float[np.ndarray, "tokens usable"]:
        """Return the slope of the loss by each usable token's share of each place (a one-hot vector).

        UserError: the model cannot be differentiated here (offloaded or quantised weights), or memory runs out.
        """
        embedding = self._model.model.get_input_embeddings()
        with torch.no_grad():
            table = embedding(torch.tensor(self._requests.usable, device=self._model.device))
        shift = torch.zeros(len(suffix), table.shape[1], dtype=table.dtype, device=table.device, requires_grad=True)

        def add(_module: Any, _args: Any, out: Tensor) -> Tensor:
            return out + pad(shift, (0, 0, self.first, out.shape[1] - self.first - len(suffix)))

        try:
            with torch.enable_grad(), embedding.register_forward_hook(add):
                loss = self.loss(self.prompts.once, np.tile(suffix, (len(self._rows), 1))).mean()
                [slope] = torch.autograd.grad(loss, shift)
        except (RuntimeError, NotImplementedError) as error:
            raise UserError(f"gradients of suffixes cannot be computed ({in_one_line(error)})") from None
        found: np.ndarray = (widened(slope) @ widened(table).T).cpu().numpy()
        return found

    def loss(self, cached: CachedPrompts, suffixes: Int[np.ndarray, "rows tokens"]) -> Float[Tensor, " rows"]:
        """Return the loss of rows of cached tokens, each followed by a suffix of its own."""
        after = torch.tensor([[*row, *self._requests.tail] for row in suffixes.tolist()], device=self._model.device)
        losses, masses = list[Tensor](), list[Tensor]()

        def see(stream: Tensor, pass_: Pass, dial: Dial, locus: Locus) -> None:
            rows = self._rows * (len(after) // len(self._rows))
            read = gather(rows, (locus.position,), cached.batch, pass_.start)(stream)[0]
            losses.append(self._gate_loss(dial, widened(read.to(after.device))))
            if not self._passes:
                raise _ReadAll

        reads = list[Edit]()
        if self._dial is not None and (locus := self._dial.read) is not None:
            reads = [reader(site(locus.site), locus.layer, partial(see, dial=self._dial, locus=locus))]
        for continuation, parents in (self._passes or {(): []}).items():
            tokens = torch.cat([after, after.new_tensor(continuation, dtype=torch.long).expand(len(after), -1)], dim=1)
            at = torch.arange(after.shape[1], tokens.shape[1] + 1).expand(len(after), -1)
            with self._model.editing(reads), suppress(_ReadAll):
                log_probs = widened(continued_log_probs(self._model, cached, tokens, at))
                for parent in parents:
                    before = log_probs[:, range(len(parent)), list(parent)].sum(dim=1, keepdim=True)
                    masses.append(before + log_probs[:, len(parent), self._ends[parent]])
            reads = []
        if masses:
            mass = torch.cat(masses, dim=1).logsumexp(dim=1).clamp(max=-LEAST)
            losses.append(-torch.log(-torch.expm1(mass)) if self._aim == "evade" else -mass)
        return torch.stack(losses).sum(dim=0)

    def _gate_loss(self, dial: Dial, read: Float[Tensor, "rows d"]) -> Float[Tensor, " rows"]:
        """Return the log-loss of a read at the limit where the gate no longer declines, or first does."""
        assert dial.probe is not None
        assert dial.calibration is not None
        sign = 1 if self._aim == "evade" else -1
        limit = float(logit(np.clip(dial.threshold - sign * dial.band, LEAST, 1 - LEAST)))
        score = read @ torch.tensor(dial.probe.weight, dtype=read.dtype, device=read.device) + dial.probe.bias
        return softplus(sign * (dial.calibration.slope * score + dial.calibration.intercept - limit))


class _ReadAll(Exception):  # noqa: N818 - no error
    """Stops the forward pass after the layer that the dial reads."""


def search(
    objective: Objective,
    requests: SuffixedRequests,
    start: Int[np.ndarray, " tokens"],
    budgets: Collection[int],
    n_candidates: int,
    rng: np.random.Generator,
    advance: Callable[[int], None] = no_progress,
) -> dict[int, tuple[Int[np.ndarray, " tokens"], float]]:
    """Return the best suffix after each budget of steps, 0 among them, with its loss, which never rises.

    A step tries some exchanges of one token, drawn among the steepest at a random place, and keeps the best one if it
    lowers the loss; it ends where that is below `FOOLED`. Candidates that do not survive as text are not tried.
    """
    best, loss = start, float(objective.losses(start[None])[0])
    found = {0: (best, loss)}
    for step in range(1, max(budgets, default=0) + 1):
        if loss >= FOOLED and len(tried := _exchanged(best, objective.gradient(best), requests, n_candidates, rng)):
            losses = objective.losses(tried)
            if losses.min() < loss:
                best, loss = tried[losses.argmin()], float(losses.min())
        advance(1)
        if step in budgets:
            found[step] = best, loss
    return found


def _exchanged(
    suffix: np.ndarray, gradient: np.ndarray, requests: SuffixedRequests, n: int, rng: np.random.Generator
) -> Suffixes:
    steepest = requests.usable[np.argsort(gradient, axis=1)[:, :TOP]]
    kept = np.zeros((0, len(suffix)), dtype=int)
    for _ in range(ROUNDS):
        drawn = np.tile(suffix, (n - len(kept), 1))
        places = rng.integers(len(suffix), size=len(drawn))
        drawn[np.arange(len(drawn)), places] = steepest[places, rng.integers(steepest.shape[1], size=len(drawn))]
        kept = np.concatenate([kept, drawn[requests.survives(drawn)]])
        if len(kept) == n:
            break
    return kept
