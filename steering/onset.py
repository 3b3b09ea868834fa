"""Onset of a response: the probability of declining openings, and a bias that raises or lowers it.

Follows refusal tokens (Jain et al., arXiv 2412.06748), with learned sequences in place of a trained token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessor

from extract.backoff import widened
from extract.model.chat_model import ChatModel
from extract.model.padded_batch import Batch
from steering.actuator import OnsetBias
from steering.interventions import DeviceCopies, LastCopy


@torch.inference_mode()
def onset_probability(model: ChatModel, batch: Batch, prefixes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, " n"]:
    """Return the probability, float64, that each response starts with a prefix: a pass over prompts a branch."""
    total = np.zeros(len(batch.tokens))
    left = set(prefixes)
    for parent in sorted({prefix[:-1] for prefix in prefixes}, key=len, reverse=True):
        covered = sorted(prefix for prefix in left if prefix[:-1] == parent[: len(prefix) - 1])
        if not covered:
            continue
        log_probs = _log_probs(model, batch, parent)
        for prefix in covered:
            steps = torch.arange(len(prefix), device=log_probs.device)
            total += widened(log_probs[:, steps, list(prefix)]).sum(dim=1).exp().cpu().numpy()
        left -= set(covered)
    return np.minimum(total, 1.0)


def _log_probs(model: ChatModel, batch: Batch, prefix: Sequence[int]) -> Float[Tensor, "batch steps vocabulary"]:
    extra = torch.tensor([list(prefix)], dtype=torch.long, device=batch.tokens.device).expand(len(batch.tokens), -1)
    mask = torch.cat([batch.attention_mask, torch.ones_like(extra)], dim=1)
    whole = Batch(torch.cat([batch.tokens, extra], dim=1), mask, batch.prompt_length)
    out: Tensor = model.run(model.model, whole, logits_to_keep=len(prefix) + 1).logits
    return out.float().log_softmax(dim=-1)


class OnsetProcessor(LogitsProcessor):
    """Biases the tokens of declining openings, in rows whose gate declines or permits.

    If the gate declines, the next token of every prefix that the row still matches is raised. If it permits, only the
    last token of a prefix is lowered, which distinguishes declining: the tokens before it may also start an answer.
    Biased rows are normalised again, so that beams compare probabilities; all other rows are bitwise unchanged. At most
    `steps` are biased; None: the length of the longest prefix.
    """

    def __init__(
        self,
        bias: OnsetBias,
        prompt_length: int,
        gate: Callable[[], Int[np.ndarray, " prompts"]],
        steps: int | None = None,
    ) -> None:
        self._bias, self._prompt_length, self._gate = bias, prompt_length, gate
        longest = max(map(len, bias.prefixes)) if bias.strength else 0
        self._steps = longest if steps is None else min(longest, steps)
        self._prefixes = {prefix: DeviceCopies(np.array(prefix)) for prefix in bias.prefixes}
        self._sent = LastCopy()

    def __call__(
        self, input_ids: Int[Tensor, "rows time"], scores: Float[Tensor, "rows vocabulary"]
    ) -> Float[Tensor, "rows vocabulary"]:
        generated = input_ids[:, self._prompt_length :]
        n = generated.shape[1]
        if n >= self._steps or not (of_prompts := self._gate()).any():
            return scores
        gate = self._sent.of(of_prompts.repeat(len(scores) // len(of_prompts)), scores.device)
        change = torch.zeros_like(scores, dtype=torch.float32)
        for prefix, tokens in self._prefixes.items():
            if len(prefix) <= n:
                continue
            matches = (generated == tokens.on(generated.device, generated.dtype)[:n]).all(dim=1)
            acts = matches & ((gate > 0) | (len(prefix) == n + 1))
            change[:, prefix[n]] = torch.where(acts, self._bias.strength * gate.float(), change[:, prefix[n]])
        biased = (scores.float() + change).log_softmax(dim=-1).to(scores.dtype)
        return torch.where((change != 0).any(dim=1, keepdim=True), biased, scores)
