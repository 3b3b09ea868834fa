"""KL divergence over the first tokens of a model's own completions (teacher forced), caused by an edit.

The first token alone misleads: if every answer opens alike (`<think>`, a newline, "Sure"), its distribution is almost
certain under any edit, and an intervention that ruins the following sentence shows no divergence there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from experiments.responses.batched_edits import MOST_LOGITS, RepeatedPrompts, Trial
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel


@dataclass(frozen=True)
class Divergence:
    """KL(unedited || edited) of the next-token distributions, in nats."""

    mean: float  # per token, over all tokens of all completions
    maximum: float  # at the single token that changes most
    first_token: float  # mean over prompts, at the first response token alone (Arditi et al.)
    worst_step: float  # mean over prompts, at the step t (after t response tokens) that changes most


class ForcedResponses:
    """Measures how far `last_on` edits move the first k next-token distributions of each response, which is fed.

    A response is the model's own greedy completion. Step t is the distribution after its first t tokens, so one of n
    tokens has min(k, n + 1) steps. A pass holds at most `MOST_LOGITS` logits for any vocabulary; keys and values and
    the plain predictions are computed once. An edit that changes nothing diverges by rounding alone.
    """

    def __init__(self, model: ChatModel, rows: Sequence[Rendered], responses: Sequence[Sequence[int]], k: int) -> None:
        self._model, self._responses, self._k = model, responses, k
        n_rows = max(1, MOST_LOGITS // (k * int(model.model.config.get_text_config().vocab_size)))
        self._parts = [slice(start, start + n_rows) for start in range(0, len(rows), n_rows)]
        self._prompts = [RepeatedPrompts(model, rows[part]) for part in self._parts]
        self._plain: dict[int, Tensor] = {}  # log-probabilities without edits, of each part

    def divergences(
        self, trials: Sequence[Trial], advance: Callable[[int], None] = lambda steps: None
    ) -> tuple[Float[np.ndarray, "trials rows k"], Bool[np.ndarray, "rows k"]]:
        """Return the KL in nats, and which steps each response has; values at other steps are undefined."""
        parts = [self._of_part(part, trials, advance) for part in range(len(self._parts))]
        steps = np.array([min(self._k, len(response) + 1) for response in self._responses])
        return np.concatenate(parts, axis=1), np.arange(self._k) < steps[:, None]

    def _of_part(self, part: int, trials: Sequence[Trial], advance: Callable[[int], None]) -> np.ndarray:
        """Return KL in nats (n_trials, n_rows, k), undefined at steps that a response does not have."""
        prompts, responses = self._prompts[part], self._responses[self._parts[part]]
        n, k = prompts.n_rows, self._k - 1
        fed = [[*response[:k], *[0] * (k - len(response))] for response in responses]  # nothing attends to the padding
        forced = torch.tensor(fed, dtype=torch.long, device=self._model.device).reshape(n, k)
        if part not in self._plain:
            self._plain[part] = prompts.plain_logits(forced).float().log_softmax(dim=-1)
        kl_by_step = np.empty((len(trials), n, self._k))
        for batch in prompts.passes(trials, self._k):
            edited = batch.split(prompts.logits(batch, forced)).float().log_softmax(dim=-1)
            kl_by_step[batch.trials] = kl(self._plain[part], edited).cpu()
            advance(len(batch.trials) * n)
        return kl_by_step


def kl(
    log_p: Float[Tensor, "... time vocabulary"], log_q: Float[Tensor, "... time vocabulary"]
) -> Float[Tensor, "... time"]:
    """Return sum p (log p - log q) in nats; tokens of probability 0 add nothing."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dim=-1)


def summary(nats: Float[np.ndarray, "rows k"], has_step: Bool[np.ndarray, "rows k"]) -> Divergence:
    """Summarise the KL over the steps that the responses have; values that are not finite stay so."""
    by_step = [float(nats[has_step[:, t], t].mean()) for t in range(nats.shape[1]) if has_step[:, t].any()]
    of_all = nats[has_step]
    return Divergence(float(of_all.mean()), float(of_all.max()), by_step[0], float(np.max(by_step)))
