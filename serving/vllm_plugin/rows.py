"""Which tokens of a step belong to which request with dials: worked out on the host, for `bank`'s buffers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from serving.vllm_plugin.bank import DialBank
from serving.vllm_plugin.request import DialRequest

KEPT = 4096  # scores of ended requests, the latest


class Rows:
    """Slots of the requests with dials, and the buffers of each step."""

    def __init__(self, bank: DialBank) -> None:
        self.bank = bank
        self._asked: dict[str, DialRequest] = {}
        self._slot: dict[str, int] = {}
        self._free = list(range(bank.score.shape[1] - 1, 0, -1))
        self._ended: OrderedDict[str, Tensor] = OrderedDict()
        self._order: tuple[list[str], Int[np.ndarray, " rows"]] = ([], np.zeros(0, dtype=np.int64))
        self._named: dict[str, str] = {}  # by key, one of the requests that have it: their prompts are the same
        self.row_slot = torch.zeros(bank.score.shape[1], dtype=torch.long, device=bank.device)
        self.row_place = torch.zeros_like(self.row_slot)  # of the next token in each row's response
        self.active = False  # whether a row of this step has dials
        self.applied: set[int] = set()  # layers after which the dials were applied in this step

    def __contains__(self, request: str) -> bool:
        return request in self._slot

    def begin(self, request: str, asked: DialRequest) -> None:
        if not self._free:
            raise RuntimeError(f"{len(self._slot)} requests with dials have begun and not ended; raise max_num_seqs")
        slot = self._slot[request] = self._free.pop()
        self._asked[request] = asked
        self._named.setdefault(asked.key, request)
        self._order = ([], self._order[1])
        thresholds = [asked.thresholds[dial.kind] for dial in self.bank.dials]
        by_category = [[threshold.of(name) for name in self.bank.categories] for threshold in thresholds]
        self.bank.threshold[:, :, slot] = torch.tensor(by_category, dtype=torch.float64, device=self.bank.device)
        self.bank.score[:, slot] = torch.nan  # until it is read

    def end(self, request: str) -> None:
        """Take a request's slot back; its scores are kept for a while."""
        slot, key = self._slot.pop(request), self._asked.pop(request).key
        if self._named.get(key) == request:
            del self._named[key]
        self._free.append(slot)
        self._order = ([], self._order[1])
        self._ended[key] = self.bank.score[:, slot].clone()
        while len(self._ended) > KEPT:
            self._ended.popitem(last=False)

    def scores(self, key: str) -> list[float] | None:
        """Return the scores of the dials, then of categories (NaN: none); None: no such request, or not read yet."""
        if key in self._named:
            scores = self.bank.score[:, self._slot[self._named[key]]].tolist()
        elif key in self._ended:
            scores = self._ended[key].tolist()
        else:
            return None
        return None if np.isnan(scores[: len(self.bank.dials)]).any() else scores

    def place(
        self,
        requests: Sequence[str],
        n_scheduled: Int[np.ndarray, " rows"],
        n_computed: Int[np.ndarray, " rows"],
        n_prompt: Int[np.ndarray, " rows"],
    ) -> None:
        """Fill the buffers for a step; tokens of each request in it (`n_scheduled`), before it, and of its prompt."""
        slots = self._slots_of(requests)
        was_active, self.active = self.active, bool(slots.any())
        if not self.active:
            if was_active:
                self.bank.slot.zero_()
                self.row_slot.zero_()
                self.bank.step.fill_(-1)
                self.bank.share.zero_()
            return
        n_scheduled = np.asarray(n_scheduled, dtype=np.int64)
        total, ends = int(n_scheduled.sum()), np.cumsum(n_scheduled)
        row = np.repeat(np.arange(len(slots)), n_scheduled)
        position = np.arange(total) - (ends - n_scheduled)[row] + np.asarray(n_computed)[row]
        step = position - (np.asarray(n_prompt)[row] - 1)
        share = np.zeros((len(self.bank.places), total), dtype=np.float32)
        begins = np.zeros((len(self.bank.places), len(slots)), dtype=bool)
        reading = np.flatnonzero((slots > 0) & (np.asarray(n_computed) < np.asarray(n_prompt)))
        for i in reading.tolist():  # each prompt once
            asked, first = self._asked[requests[i]], int(n_computed[i])
            start = int(ends[i] - n_scheduled[i]) - first
            for k, what in enumerate(self.bank.places):
                places = (asked.read_at or {}).get(what, ())  # no category where no threshold depends on it
                if inside := [at for at in places if first <= at < first + n_scheduled[i]]:
                    share[k, [start + at for at in inside]] = 1 / len(places)
                    begins[k, i] = inside[0] == places[0]
        for k, i in zip(*np.nonzero(begins), strict=True):
            self.bank.score[self.bank.rows_of(int(k)), slots[i]] = 0.0
        self._send(self.bank.slot, slots[row], 0)
        self._send(self.row_slot, slots, 0)
        self._send(self.row_place, np.asarray(n_computed) + n_scheduled - np.asarray(n_prompt), -1)
        self._send(self.bank.step, np.clip(step, -1, None).astype(np.int32), -1)
        self.bank.share[:, :total].copy_(torch.from_numpy(share), non_blocking=True)
        self.bank.share[:, total:].zero_()

    def _slots_of(self, requests: Sequence[str]) -> Int[np.ndarray, " rows"]:
        """Return the slot of each row; unchanged rows are not looked up again."""
        known, slots = self._order
        if not self._slot:
            return np.zeros(len(requests), dtype=np.int64)
        if known != requests:
            slots = np.array([self._slot.get(one, 0) for one in requests], dtype=np.int64)
            self._order = (list(requests), slots)
        return slots

    def _send(self, buffer: Tensor, values: np.ndarray, rest: int) -> None:
        buffer[: len(values)].copy_(torch.from_numpy(values), non_blocking=True)
        buffer[len(values) :].fill_(rest)
