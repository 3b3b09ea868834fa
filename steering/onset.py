"""How a response opens: the probability of its declining openings, and making them likelier or less likely.

After refusal tokens (Jain et al., arXiv 2412.06748), where a model was trained to open with one token when it refuses,
and the probability of that token is held against a threshold while decoding. Here openings are learned sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessor

from extract.model.chat_model import ChatModel
from extract.model.padded_batch import Batch
from steering.actuator import OnsetBias
from steering.device_copies import DeviceCopies, LastCopy


@torch.inference_mode()
def onset_probability(model: ChatModel, batch: Batch, prefixes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, " n"]:
    """Return how probable it is, in float64, that each prompt's response opens with one of the prefixes.

    It takes one pass over the prompts more for each branch of the prefixes, and adds nothing to decoding.
    """
    total = np.zeros(len(batch.tokens))
    left = set(prefixes)
    for parent in sorted({prefix[:-1] for prefix in prefixes}, key=len, reverse=True):
        covered = sorted(prefix for prefix in left if prefix[:-1] == parent[: len(prefix) - 1])
        if not covered:
            continue
        log_probs = _log_probs(model, batch, parent)
        for prefix in covered:
            steps = torch.arange(len(prefix), device=log_probs.device)
            total += log_probs[:, steps, list(prefix)].double().sum(dim=1).exp().cpu().numpy()
        left -= set(covered)
    return np.minimum(total, 1.0)


def _log_probs(model: ChatModel, batch: Batch, said: Sequence[int]) -> Float[Tensor, "batch steps vocabulary"]:
    """Return the distributions after the last prompt token and after each token said."""
    extra = torch.tensor([list(said)], dtype=torch.long, device=batch.tokens.device).expand(len(batch.tokens), -1)
    mask = torch.cat([batch.attention_mask, torch.ones_like(extra)], dim=1)
    whole = Batch(torch.cat([batch.tokens, extra], dim=1), mask, batch.prompt_length)
    out: Tensor = model.run(model.model, whole, logits_to_keep=len(said) + 1).logits
    return out.float().log_softmax(dim=-1)


class OnsetProcessor(LogitsProcessor):
    """Biases the tokens that lead into declining openings, in the rows whose gate says so.

    Where the gate declines, every token of a prefix the row is still on is raised. Where it permits, only the last one,
    which tells declining apart, is lowered: what comes before it may begin an answer too. Rows that are biased are
    normalised again, so that beams compare probabilities; all others are bitwise as they were.

    Args:
        gate: returns +1, -1 or 0 for each prompt, as it was decided at prefill.
        steps: how many steps are biased at most.
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
        said = input_ids[:, self._prompt_length :]
        n = said.shape[1]
        if n >= self._steps or not (of_prompts := self._gate()).any():
            return scores
        gate = self._sent.of(of_prompts.repeat(len(scores) // len(of_prompts)), scores.device)
        change = torch.zeros_like(scores, dtype=torch.float32)
        for prefix, tokens in self._prefixes.items():
            if len(prefix) <= n:
                continue
            on_it = (said == tokens.on(said.device, said.dtype)[:n]).all(dim=1)
            acts = on_it & ((gate > 0) | (len(prefix) == n + 1))
            change[:, prefix[n]] = torch.where(acts, self._bias.strength * gate.float(), change[:, prefix[n]])
        biased = (scores.float() + change).log_softmax(dim=-1).to(scores.dtype)
        return torch.where((change != 0).any(dim=1, keepdim=True), biased, scores)
