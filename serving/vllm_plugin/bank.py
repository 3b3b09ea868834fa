"""Dials as tensors on a device, and what they do at one layer to all tokens of a step, without a loop or a wait.

The tokens of a step are flat, as in vLLM: those of all running requests, one after the other. A request with thresholds
has a slot (slot 0: requests without dials). What the host says of each token lies in buffers that keep their addresses,
so that a captured graph could hold them. The semantics are those of `steering.controller`. What a dial or the category
reads is the mean of some prompt tokens: linear scores, added up with weights, also over several chunks of a prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from extract.errors import UserError
from probes.direction import Locus
from serving.vllm_plugin.request import DialRequest
from steering.dial import Dial, ReadName, category_read, check_order, check_width, decide, normative_first, read_places
from steering.gates import AnswerReading, AnswerWatch
from steering.interventions import projection_change
from steering.writer import JointTables, LayerWrite

FOREVER = 2**31 - 1
KEPT = 4096  # scores of ended requests, the latest


@dataclass(frozen=True)
class _Read:
    """One read: of a dial, or of the category, which has a score for each name."""

    place: int  # among the places of the bank
    scores: slice  # its rows of the bank's scores
    weight: Float[Tensor, "scores d_model"]
    bias: Float[Tensor, "scores 1"]


@dataclass(frozen=True)
class _Write:
    """The gates that write at one layer."""

    dials: list[int]
    tables: JointTables
    steps: Float[Tensor, "gates 1"]
    powers: Float[Tensor, "gates 1"]


class DialBank:
    """The dials of a model, with room for so many requests and so many tokens of a step."""

    def __init__(
        self,
        dials: Sequence[Dial],
        n_layers: int,
        d_model: int,
        n_slots: int,
        n_tokens: int,
        device: str | torch.device = "cpu",
    ) -> None:
        self.dials: list[Dial] = normative_first(dials)
        _check(self.dials, n_layers, d_model)
        K, self.device = len(self.dials), torch.device(device)
        calibrations = [dial.calibration for dial in self.dials if dial.calibration]  # `_check`: all have one
        self._slope = self._column([calibration.slope for calibration in calibrations])
        self._intercept = self._column([calibration.intercept for calibration in calibrations])
        self._band = self._column([dial.band for dial in self.dials])
        self._again_reads = torch.tensor([[dial.reread] for dial in self.dials], device=self.device)
        self._any_again = any(dial.reread for dial in self.dials)
        self.places: dict[ReadName, Locus] = read_places(self.dials)
        self.category_read = category_read(self.dials)
        names = () if self.category_read is None else self.category_read.names
        self.categories = (*(name or None for name in names), None)  # the last: none is recognised
        self._reads, self._writes = self._read_tables(), self._write_tables()
        self.slot: Tensor = torch.zeros(n_tokens, dtype=torch.long, device=self.device)
        self.step = torch.full((n_tokens,), -1, dtype=torch.int32, device=self.device)  # 0: the last prompt token
        self.share = torch.zeros(len(self.places), n_tokens, device=self.device)  # of a token in what is read there
        self.score = torch.zeros(K + len(names), n_slots, device=self.device)  # of the dials, then of the categories
        shape = K, len(self.categories), n_slots  # by recognised category; NaN: off
        self.threshold: Tensor = torch.full(shape, torch.nan, dtype=torch.float64, device=self.device)
        self._again = torch.zeros(K, n_tokens, device=self.device)  # scores of tokens that are read again
        watched = [
            dial.reference.answer_tokens for dial in self.dials if dial.reference and dial.answer_limit is not None
        ]
        shape = K, n_slots, max(watched, default=0)  # log-odds of answers' tokens, of dials that alarm
        self.answers: Tensor = torch.full(shape, -torch.inf, device=self.device)

    @property
    def layers(self) -> list[int]:
        return sorted({*self._reads, *self._writes})

    def probability(self, score: Float[Tensor, "dials ..."]) -> Float[Tensor, "dials ..."]:
        return torch.sigmoid(self._slope * score.double() + self._intercept)

    def gates(self, score: Float[Tensor, "dials n"], slot: Int[Tensor, " n"]) -> Int[Tensor, "dials n"]:
        return decide(self.probability(score), self.limits(slot), self._band)

    def limits(self, slot: Int[Tensor, " n"]) -> Float[Tensor, "dials n"]:
        """Return the thresholds of some slots, by the category that is recognised there."""
        if self.category_read is None:
            return self.threshold[:, 0, slot]
        return self.threshold[:, self.recognised(self.score[len(self.dials) :, slot]), slot]

    def recognised(self, score: Float[Tensor, "names n"]) -> Int[Tensor, " n"]:
        """Return the place of each prompt's category among `categories`: the last where none is confident."""
        assert self.category_read is not None
        most, best = score.double().softmax(dim=0).max(dim=0)
        return torch.where(most >= self.category_read.confident, best, len(score))  # NaN: not read

    def rows_of(self, place: int) -> slice:
        return slice(place, place + 1) if place < len(self.dials) else slice(place, None)

    def apply(
        self, layer: int, hidden: Float[Tensor, "tokens d_model"], residual: Float[Tensor, "tokens d_model"]
    ) -> None:
        """Read and write after a layer whose stream is `hidden + residual`; writes change `hidden`, in place."""
        n = len(hidden)
        stream = hidden.float() + residual.float()
        for read in self._reads.get(layer, ()):
            self._read(read, stream, n)
        if (write := self._writes.get(layer)) is not None:
            hidden.add_(self._change(write, stream, n).to(hidden.dtype))

    def _read(self, read: _Read, stream: Tensor, n: int) -> None:
        score, share = read.weight @ stream.T + read.bias, self.share[read.place, :n]
        self.score[read.scores].index_add_(1, torch.where(share > 0, self.slot[:n], 0), score * share)
        if read.place < len(self.dials):
            self._again[read.place, :n] = score[0]
            self._watch(read.place, score[0], n)

    def _watch(self, place: int, score: Float[Tensor, " tokens"], n: int) -> None:
        """Keep the log-odds of the answers' tokens of a dial that alarms."""
        if self.dials[place].answer_limit is None:
            return
        token = self.step[:n].long() - 1
        inside = (token >= 0) & (token < self.answers.shape[2])
        slot, token = torch.where(inside, self.slot[:n], 0), torch.where(inside, token, 0)
        self.answers[place].index_put_((slot, token), (self._slope[place] * score + self._intercept[place]).float())

    def _change(self, write: _Write, stream: Tensor, n: int) -> Tensor:
        slot, step = self.slot[:n], self.step[:n]
        score = self.score[: len(self.dials), slot]
        if self._any_again:
            score = torch.where(self._again_reads & (step > 0), self._again[:, :n], score)
        gates = self.gates(score, slot)[write.dials]
        gates = torch.where((step >= 0) & (step < write.steps), gates, 0)
        state = ((gates + 1) * write.powers).sum(dim=0)
        tables, device = write.tables, self.device
        added = None if tables.added is None else tables.added.on(device)[state]
        wide = stream if added is None else stream + added
        least, most, solve = (table.on(device)[state] for table in (tables.least, tables.most, tables.solve))
        change = projection_change(wide, tables.R.on(device), least, most, solve)
        return torch.where((state != tables.idle)[:, None], change if added is None else change + added, 0)

    def _read_tables(self) -> dict[int, list[_Read]]:
        probes = [(dial.probe.weight[None], np.array([dial.probe.bias])) for dial in self.dials if dial.probe]
        if self.category_read is not None:
            probes.append((self.category_read.weight, self.category_read.bias))
        at: dict[int, list[_Read]] = {}
        for i, (locus, (weight, bias)) in enumerate(zip(self.places.values(), probes, strict=True)):
            read = _Read(i, self.rows_of(i), self._float(weight), self._float(bias)[:, None])
            at.setdefault(after_layer(locus), []).append(read)
        return at

    def _write_tables(self) -> dict[int, _Write]:
        at: dict[int, list[tuple[int, LayerWrite]]] = {}
        for i, dial in enumerate(self.dials):
            for write in dial.writer.at_layers():
                at.setdefault(after_layer(write.direction.locus), []).append((i, write))
        made: dict[int, _Write] = {}
        for layer, writes in at.items():
            dials, tables = [i for i, _ in writes], JointTables.of([write for _, write in writes])
            for table in (tables.R, tables.added, tables.least, tables.most, tables.solve):
                if table is not None:
                    table.on(self.device)  # here, since nothing is sent while a graph is captured
            last = [FOREVER if self.dials[i].steps is None else self.dials[i].steps for i in dials]
            steps, powers = (torch.tensor(n, device=self.device)[:, None] for n in (last, tables.powers))
            made[layer] = _Write(dials, tables, steps, powers)
        return made

    def _column(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)[:, None]

    def _float(self, values: object) -> Tensor:
        return torch.tensor(np.array(values), dtype=torch.float32, device=self.device)


def after_layer(locus: Locus) -> int:
    """Return the layer whose output is the stream at a site: a block's input is the output of the one before."""
    layer = locus.layer - (locus.site == "resid_pre")
    if locus.site == "resid_mid" or layer < 0:
        raise UserError(
            f"vLLM's layers give their outputs only; a dial at {locus.site} of layer {locus.layer} is not "
            "possible: fit it at resid_post"
        )
    return layer


def _check(dials: Sequence[Dial], n_layers: int, d_model: int) -> None:
    check_order(dials)
    check_width(dials, d_model, "this model")
    for dial in dials:
        if dial.read is None or dial.probe is None:
            raise UserError(
                f"the {dial.kind} dial reads the probability of openings, which takes passes of its own: "
                "not possible inside vLLM; give it a probe"
            )
        places = [dial.read, *(write.direction.locus for write in dial.writer.at_layers())]
        if dial.by_category is not None:
            places.append(dial.by_category.read.locus)
        for locus in places:
            if after_layer(locus) >= n_layers:
                raise UserError(f"the {dial.kind} dial is for layer {locus.layer}; this model has {n_layers} layers")


class Rows:
    """Which tokens of a step belong to which request with dials: fills the bank's buffers, on the host."""

    def __init__(self, bank: DialBank) -> None:
        self.bank = bank
        self._asked: dict[str, DialRequest] = {}
        self._slot: dict[str, int] = {}
        self._free = list(range(bank.score.shape[1] - 1, 0, -1))
        self._ended: OrderedDict[str, tuple[Tensor, Tensor]] = OrderedDict()
        self._order: tuple[list[str], Int[np.ndarray, " rows"]] = ([], np.zeros(0, dtype=np.int64))
        self._named: dict[str, str] = {}  # by key, one of the requests that have it: their prompts are the same
        self.row_slot: Tensor = torch.zeros(bank.score.shape[1], dtype=torch.long, device=bank.device)
        self.row_place: Tensor = torch.zeros_like(self.row_slot)  # of the next token in each row's response
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
        self.bank.answers[:, slot] = -torch.inf

    def end(self, request: str) -> None:
        """Take a request's slot back; its scores are kept for a while."""
        slot, key = self._slot.pop(request), self._asked.pop(request).key
        if self._named.get(key) == request:
            del self._named[key]
        self._free.append(slot)
        self._order = ([], self._order[1])
        self._ended[key] = self._read_in(slot)
        while len(self._ended) > KEPT:
            self._ended.popitem(last=False)

    def _read_in(self, slot: int) -> tuple[Tensor, Tensor]:
        return self.bank.score[:, slot].clone(), self.bank.answers[:, slot].clone()

    def _read(self, key: str) -> tuple[Tensor, Tensor] | None:
        return self._read_in(self._slot[self._named[key]]) if key in self._named else self._ended.get(key)

    def scores(self, key: str) -> list[float] | None:
        """Return the scores of the dials, then of categories (NaN: none); None: no such request, or not read yet."""
        read = self._read(key)
        return None if read is None or read[0][: len(self.bank.dials)].isnan().any() else read[0].tolist()

    def answers(self, key: str, n_tokens: int) -> list[AnswerReading | None]:
        """Return what each dial that alarms has read of the first tokens of a request's answer; None: it does not."""
        read, found = self._read(key), list[AnswerReading | None]()
        for i, dial in enumerate(self.bank.dials):
            if read is None or dial.answer_limit is None or dial.reference is None:
                found.append(None)
                continue
            watch = AnswerWatch(dial.answer_limit, min(n_tokens, dial.reference.answer_tokens))
            watch.see(read[1][i][None], 0)
            found.append(watch.now()[0] if watch.highest is not None else AnswerReading(None, dial.answer_limit, None))
        return found

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
