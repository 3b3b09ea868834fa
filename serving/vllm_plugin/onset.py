"""Onset biases for the rows of any requests: the flat form of `steering.onset.OnsetProcessor`.

Which openings a response still matches is kept for each slot on the device, from the tokens as they are run: none is
read back, and a request that is computed again from its prompt is matched again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from serving.vllm_plugin.bank import DialBank
from steering.actuator import OnsetBias


@dataclass
class _Onset:
    """One dial's openings, padded to the longest, and how many tokens of each slot's response differ from each."""

    dial: int
    strength: float
    steps: int
    prefixes: Int[Tensor, "prefixes longest"]
    length: Int[Tensor, " prefixes"]
    differing: Int[Tensor, "prefixes slots"]


class Onsets:
    """The onset biases of a bank's dials."""

    def __init__(self, bank: DialBank) -> None:
        self._bank, self._onsets = bank, list[_Onset]()
        for i, dial in enumerate(bank.dials):
            if isinstance(dial.actuator, OnsetBias) and dial.actuator.strength:
                found, longest = dial.actuator.prefixes, max(map(len, dial.actuator.prefixes))
                padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in found]
                self._onsets.append(
                    _Onset(
                        i,
                        dial.actuator.strength,
                        longest if dial.steps is None else min(longest, dial.steps),
                        torch.tensor(padded, device=bank.device),
                        torch.tensor([len(p) for p in found], device=bank.device),
                        torch.zeros(len(found), bank.score.shape[1], dtype=torch.int32, device=bank.device),
                    )
                )

    def __bool__(self) -> bool:
        return bool(self._onsets)

    def see(self, tokens: Int[Tensor, " tokens"]) -> None:
        """Compare the tokens of a step, in the order of the bank's buffers, with the openings."""
        n = len(tokens)
        slot, step = self._bank.slot[:n], self._bank.step[:n]
        for onset in self._onsets:
            onset.differing.index_fill_(1, torch.where(step == 0, slot, 0), 0)
            place = (step - 1).long()  # of a token in its response
            expected = onset.prefixes[:, place.clamp(0, onset.prefixes.shape[1] - 1)]
            differs = (place >= 0) & (place < onset.length[:, None]) & (expected != tokens)
            onset.differing.index_add_(1, torch.where(place >= 0, slot, 0), differs.int())

    def biased(
        self, scores: Float[Tensor, "rows vocabulary"], slot: Int[Tensor, " rows"], place: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return the next-token scores with the openings raised or lowered; rows without dials are bitwise unchanged.

        Args:
            slot: of each row.
            place: of the next token in each row's response; negative while its prompt is not whole.
        """
        gates = self._bank.gates_of(slot)
        for onset in self._onsets:
            gate, change = gates[onset.dial], torch.zeros_like(scores, dtype=torch.float32)
            open_ = (slot > 0) & (place >= 0) & (place < onset.steps) & (gate != 0)
            for prefix, length, differing in zip(onset.prefixes, onset.length, onset.differing, strict=True):
                acts = open_ & (differing[slot] == 0) & (place < length) & ((gate > 0) | (length == place + 1))
                following = prefix[place.clamp(0, len(prefix) - 1)].clamp(min=0)[:, None]
                raised = torch.where(
                    acts[:, None], (onset.strength * gate.float())[:, None], change.gather(1, following)
                )
                change.scatter_(1, following, raised)
            biased = (scores.float() + change).log_softmax(dim=-1).to(scores.dtype)
            scores = torch.where((change != 0).any(dim=1, keepdim=True), biased, scores)
        return scores
