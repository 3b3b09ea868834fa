"""What transformers' `generate` calls at each step: seeded token sampling, and a callback for the step's tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation.streamers import BaseStreamer

from extract.errors import UserError

Watch = Callable[[list[int]], None]


class StepStreamer(BaseStreamer):
    """Calls a function with the tokens of each step, one per row; an exception in it ends the decoding."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._prompt_came = False

    def put(self, value: Int[Tensor, ...]) -> None:
        if self._prompt_came:
            self._watch(value.tolist())
        self._prompt_came = True  # transformers passes the prompts first

    def end(self) -> None:
        pass


def cut_at_end(response: Sequence[int], ends: Collection[int]) -> list[int]:
    """Return a response up to its first end token, without it."""
    end = next((index for index, token in enumerate(response) if token in ends), len(response))
    return list(response[:end])


TINY = 1e-6  # below it, temperatures overflow and probabilities vanish in float32


@dataclass(frozen=True)
class SampledResponse:
    """One sampled response."""

    token_ids: tuple[int, ...]  # without the end token
    log_probs: tuple[float, ...]  # of each token and of the end if it ended; nats, at temperature 1 without top_p
    ended: bool

    @property
    def log_prob(self) -> float:
        """Log-probability of the response, in nats; of the truncated response if it did not end."""
        return float(sum(self.log_probs))


class TokenSampler(LogitsProcessor):
    """Samples the next token of every row and masks all others, so that greedy decoding, with its edits, takes it.

    A row's random numbers depend only on its seed. A token is drawn by inverting the distribution function over the
    vocabulary, so a small change of the logits only moves boundaries between neighbouring tokens. Temperature (near 0:
    the likeliest token) and top_p are one value, or one per row.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        steps: int,
        temperature: float | Sequence[float] = 1.0,
        top_p: float | Sequence[float] = 1.0,
    ) -> None:
        given, least = (torch.as_tensor(v, dtype=torch.float64).expand(len(seeds)) for v in (temperature, top_p))
        if wrong := [value for value in given.tolist() if not 0 <= value < math.inf]:
            raise UserError(f"temperature is {wrong[0]:g}; give a finite number, 0 (the likeliest token) or above")
        if wrong := [value for value in least.tolist() if not 0 < value <= 1]:
            raise UserError(f"top_p is {wrong[0]:g}; give a probability above 0 and at most 1")
        self._temperature, self._top_p = given.float(), least.clamp(min=TINY).float()
        self._uniform = np.stack([np.random.default_rng(seed).random(steps, dtype=np.float32) for seed in seeds])
        self._log_probs: list[Float[Tensor, " batch"]] = []

    def __call__(
        self, input_ids: Int[Tensor, "batch time"], scores: Float[Tensor, "batch vocabulary"]
    ) -> Float[Tensor, "batch vocabulary"]:
        """Return scores of 0 for the sampled token and minus infinity for all others."""
        drawn = self.choose(scores, torch.arange(len(scores)))[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)

    def choose(self, scores: Float[Tensor, "rows vocabulary"], rows: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
        """Return the sampled token of some rows (on the host), one step after another; ended ones may be left out."""
        logits = scores.float()
        uniform = torch.from_numpy(self._uniform[rows.numpy(), len(self._log_probs)]).to(logits.device)
        temperature, top_p = self._temperature[rows].to(logits.device), self._top_p[rows]
        greedy = temperature < TINY
        tempered = (logits / temperature.masked_fill(greedy, 1.0)[:, None]).softmax(dim=-1)
        drawn = torch.where(greedy, scores.argmax(dim=-1), draw(tempered, uniform, top_p))
        log_probs = (logits.gather(1, drawn[:, None]) - logits.logsumexp(dim=-1, keepdim=True))[:, 0]
        at_once = torch.zeros(len(self._uniform), device=logits.device)
        at_once[rows.to(logits.device)] = log_probs
        self._log_probs.append(at_once)
        return drawn

    def sampled(self, responses: Sequence[Sequence[int]], ends: Collection[int]) -> list[SampledResponse]:
        """Return the sampled responses, each cut at its first end token."""
        log_probs = torch.stack(self._log_probs, dim=1).tolist()
        drawn = []
        for tokens, of_tokens in zip(responses, log_probs, strict=True):
            kept = tuple(cut_at_end(tokens, ends))
            ended = len(kept) < len(tokens)
            drawn.append(SampledResponse(kept, tuple(of_tokens[: len(kept) + ended]), ended))
        return drawn


def draw(
    probability: Float[Tensor, "batch vocabulary"],
    uniform: Float[Tensor, " batch"],
    top_p: float | Float[Tensor, " batch"] = 1.0,
) -> Int[Tensor, " batch"]:
    """Return the token of the nucleus at which the distribution function exceeds `uniform`, in [0, 1) for each row."""
    kept = nucleus(probability, top_p)
    total = kept.cumsum(dim=-1)
    below = torch.nextafter(total[:, -1:], torch.zeros_like(total[:, -1:]))  # else rounding up could exceed the total
    passed = (total > torch.minimum(uniform[:, None] * total[:, -1:], below)) & (kept > 0)
    return passed.int().argmax(dim=-1)


def nucleus(
    probability: Float[Tensor, "batch vocabulary"], top_p: float | Float[Tensor, " batch"]
) -> Float[Tensor, "batch vocabulary"]:
    """Set to zero all but the smallest set of tokens that reaches `top_p` (arXiv 1904.09751); not renormalised."""
    least = torch.as_tensor(top_p)
    if bool((least >= 1).all()):
        return probability
    least = least.expand(len(probability))[:, None].to(probability.device)
    ranked, order = probability.sort(dim=-1, descending=True, stable=True)
    before = ranked.cumsum(dim=-1) - ranked
    inside = (before < least) | (least >= 1)
    return torch.zeros_like(probability).scatter(1, order, ranked.where(inside, torch.zeros_like(ranked)))
