"""The flat form of the dials, for rows of any requests, does what `steering` does to a batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from probes.direction import Direction, Locus
from serving.vllm_plugin.bank import DialBank, Rows
from serving.vllm_plugin.placed import OnsetBiases
from serving.vllm_plugin.request import DialRequest, tokens_read
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.controller import steering
from steering.dial import CategoryRead, CategoryThresholds, Dial, Kind, Reference
from tests.steering.conftest import D_MODEL, WRITE, dial, model, read, rows, streams, unit

__all__ = ["dial", "model", "read", "rows", "streams"]  # fixtures
Make = Callable[..., Dial]
KINDS: tuple[Kind, ...] = ("normative", "epistemic")
STEPS = 6
OPENED = tuple(Direction(f"over-refusal {i}", unit(20 + i), WRITE, 6.0, -5.0) for i in range(2))
OPENING = OnsetBias(((5, 6, 7), (5, 9), (8,)), 30.0)
MEAN = Locus("resid_post", 0, "inst_mean")
LATER = Direction("later", unit(11), WRITE, 9.0, -7.0, later_means={2: (8.0, -5.0), 3: (4.0, -2.0)})
CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "affine": ({}, {}),
    "added": ({"actuator": Addition(0.7)}, {"actuator": Addition(0.4)}),
    "clamped and affine": ({"actuator": Clamp()}, {"actuator": Affine(0.5)}),
    "added and clamped": ({"actuator": Addition(0.5)}, {"actuator": Clamp()}),
    "two steps, and the prefill": ({"steps": 2}, {"steps": 1}),
    "dead bands": ({"band": 0.3}, {"band": 0.2}),
    "read again": ({"reread": True}, {}),
    "both read again": ({"reread": True}, {"reread": True, "band": 0.1}),
    "later layers": ({"write": LATER, "later": True}, {}),
    "opening directions": ({"opening": OPENED}, {"opening": OPENED[:1], "actuator": Clamp()}),
    "opening directions, and later layers": ({"write": LATER, "later": True, "opening": OPENED}, {}),
    "read over the instruction": ({"read": MEAN}, {}),
    "an opening": ({"write": None, "actuator": OPENING}, {}),
    "both openings": (
        {"write": None, "actuator": OnsetBias(((5, 6, 7), (8,)), 30.0)},
        {"write": None, "actuator": OnsetBias(((9, 10), (11, 12, 13)), 4.0), "steps": 2},
    ),
    "read where it is written": ({"read": WRITE}, {"read": WRITE}),
}


def recognising(locus: Locus, d_model: int = D_MODEL) -> CategoryThresholds:
    return CategoryThresholds(CategoryRead(("", "one"), locus, np.zeros((2, d_model)), np.zeros(2), 0.8), {"one": 0.5})


def request(given: Sequence[Dial], read_at: Mapping[Any, tuple[int, ...]], key: str) -> DialRequest:
    return DialRequest(key=key, thresholds={one.kind: one.resolved() for one in given}, read_at=read_at)


def flat(
    model: ChatModel, given: Sequence[Dial], rows: Sequence[Rendered], thresholds: Mapping[Kind, Sequence[float | None]]
) -> tuple[list[list[int]], Rows]:
    """Decode greedily with the bank, whose tokens lie one row after the other, without padding."""
    bank = DialBank(given, model.n_layers, D_MODEL, n_slots=len(rows) + 1, n_tokens=512)
    placed, batch, onsets, sizes = Rows(bank), model.batch(rows), OnsetBiases(bank), list[int]()
    for i, row in enumerate(rows):
        asked = {one.kind: one.resolved(thresholds[one.kind][i]) for one in given}
        if any(threshold.value is not None for threshold in asked.values()):
            placed.begin(str(i), DialRequest(key=str(i), thresholds=asked, read_at=tokens_read(given, row)))
    pads = batch.n_pad.tolist()

    def edit(layer: int) -> Edit:
        def function(stream: Tensor, pass_: Pass) -> Tensor:
            begins = [max(pad - pass_.start, 0) for pad in pads]
            if layer == bank.layers[0]:
                lengths = np.array([pass_.length - begin for begin in begins])
                computed = np.array([max(pass_.start - pad, 0) for pad in pads])
                prompts = np.array([len(row.token_ids) for row in rows])
                sizes[:] = lengths.tolist()
                placed.place([str(i) for i in range(len(rows))], lengths, computed, prompts)
            tokens = torch.cat([part[begin:] for part, begin in zip(stream, begins, strict=True)])
            hidden, residual = tokens * 0.25, tokens * 0.75
            if placed.active:
                bank.apply(layer, hidden, residual)
            changed = (hidden + residual).split([pass_.length - begin for begin in begins])
            return torch.stack([torch.cat([old[:begin], new])
                                for old, new, begin in zip(stream, changed, begins, strict=True)])  # fmt: skip

        return Edit("resid_post", layer, function)

    class Biases(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if not placed.active:
                return scores
            onsets.see(torch.cat([ids[-n:] for ids, n in zip(input_ids, sizes, strict=True)]))
            n = len(scores)
            return onsets.biased(scores, placed.row_slot[:n], placed.row_place[:n])

    with model.editing([edit(layer) for layer in bank.layers], [Biases()]):
        return [list(each) for each in model.generate(batch, STEPS)], placed


@pytest.mark.parametrize("case", CASES)
def test_tokens_and_probabilities_are_those_of_steering(model, rows, dial, case) -> None:
    given = [replace(dial(kind), **change) for kind, change in zip(KINDS, CASES[case], strict=True)]  # type: ignore[arg-type]
    drawn = np.array(list(product((0.1, 0.5, 0.9), (0.3, np.nan))))[: len(rows)].T
    drawn[:, -1] = np.nan  # a row without dials
    thresholds: dict[Kind, list[float | None]] = dict(zip(KINDS, drawn.tolist(), strict=True))
    batch = model.batch(rows)
    with steering(model, given, batch, rows, thresholds) as readings:
        expected = [list(each) for each in model.generate(batch, STEPS)]
    found, placed = flat(model, given, rows, thresholds)
    assert found == expected
    assert expected != [list(each) for each in model.generate(batch, STEPS)]  # the dials change something
    for i in range(len(rows) - 1):
        score = placed.scores(str(i))
        assert score is not None
        probability = placed.bank.probability(torch.tensor(score)[:, None])[:, 0].numpy()
        assert probability == pytest.approx([readings.probability[kind][i] for kind in KINDS], abs=1e-5)
    assert placed.scores(str(len(rows) - 1)) is None


def test_what_alarms_reads_of_answers_is_that_of_steering(model, rows, dial) -> None:
    reference = Reference(np.zeros(1), np.zeros((1, D_MODEL)), np.linspace(-1.0, 1.0, 9), answer_tokens=STEPS - 2)
    given = [replace(dial(kind), reference=reference).alarm(0.5) for kind in KINDS]
    with steering(model, given, batch := model.batch(rows), rows) as readings:
        expected = [list(each) for each in model.generate(batch, STEPS)]
    found, placed = flat(model, given, rows, {kind: [None] * len(rows) for kind in KINDS})
    assert found == expected == [list(each) for each in model.generate(batch, STEPS)]  # nothing is written
    answers = readings.of_answers()
    for i in range(len(rows)):
        for one, kind in zip(placed.answers(str(i), STEPS), KINDS, strict=True):
            by_hand = answers[kind][i]
            assert one.highest == pytest.approx(by_hand.highest, abs=1e-4)
            assert (one.limit, one.at) == (by_hand.limit, by_hand.at)
    assert {one.at is None for read in answers.values() for one in read} == {True, False}


@pytest.mark.parametrize("changes", [{}, {"reread": True}, {"write": None, "actuator": OPENING}], ids=str)
def test_thresholds_by_category_are_those_of_steering(model, rows, dial, read, changes) -> None:
    """A category's threshold, a dial's own where it has none, and a request's before both."""
    given = [dial("normative", by_category=CategoryThresholds(read, {"one": 0.0, "two": 1.01}), **changes),
             dial("epistemic", by_category=CategoryThresholds(read, {"two": 0.0}))]  # fmt: skip
    asked: dict[Kind, list[float | None]] = {"normative": [None, 0.2, None, 0.1, None, np.nan],
                                             "epistemic": [None, None, 0.9, None, None, np.nan]}  # fmt: skip
    batch = model.batch(rows)
    with steering(model, given, batch, rows, asked) as readings:
        expected = [list(each) for each in model.generate(batch, STEPS)]
    assert readings.category == ["one", "two", None, None, None, None]
    found, placed = flat(model, given, rows, asked)
    assert found == expected
    bank = placed.bank
    for i in range(len(rows) - 1):
        slot = torch.tensor([placed._slot[str(i)]])
        assert bank.categories[int(bank.recognised(bank.score[2:, slot]))] == readings.category[i]
        assert bank.limits(slot)[:, 0].tolist() == [readings.threshold[kind][i] for kind in KINDS]
    pooled = [replace(one, by_category=None) for one in given]
    assert flat(model, pooled, rows, asked)[0] != expected  # the control: categories matter
    swapped = {"normative": [0.0, *asked["normative"][1:]], "epistemic": [None, 0.0, *asked["epistemic"][2:]]}
    assert flat(model, pooled, rows, swapped)[0] == expected  # type: ignore[arg-type]


def test_a_category_read_over_chunks_is_that_of_the_whole_prompt(model, rows, dial, read) -> None:
    mean = replace(read, locus=MEAN)
    given = [dial("normative", by_category=CategoryThresholds(mean, {"one": 0.0}))]
    bank, row = DialBank(given, model.n_layers, D_MODEL, n_slots=4, n_tokens=64), rows[3]
    placed, n, streams = Rows(bank), len(row.token_ids), list[Tensor]()
    placed.begin("a", request(given, tokens_read(given, row), "a"))
    model.capture(model.batch([row]), "resid_post", [0], lambda _, s: streams.append(s[0].clone()))
    expected = mean.weight @ streams[0][list(row.roles["inst_mean"])].double().mean(dim=0).numpy()
    for sizes in ([n], [3, n - 3], [1] * n):
        start = 0
        for size in sizes:
            placed.place(["a"], np.array([size]), np.array([start]), np.array([n]))
            bank.apply(0, streams[0][start : start + size].clone(), torch.zeros(size, D_MODEL))
            start += size
        assert placed.scores("a")[1:] == pytest.approx(expected.tolist(), abs=1e-4)  # type: ignore[index]


def test_chunks_and_recomputation_read_and_write_the_same(model: ChatModel, rows: list[Rendered], dial: Make) -> None:
    """A prompt in chunks beside another request, then preempted and run again from its first token."""
    given = [replace(dial("normative"), read=MEAN), dial("epistemic")]
    bank = DialBank(given, model.n_layers, D_MODEL, n_slots=4, n_tokens=64)
    placed, row = Rows(bank), rows[3]
    n, places = len(row.token_ids), zip(KINDS, ("inst_mean", "post_last"), strict=True)
    at = {kind: tuple(row.roles[position]) for kind, position in places}
    placed.begin("a", request(given, at, "a"))
    seen: dict[int, Tensor] = {}
    model.capture(model.batch([row]), "resid_post", [0, 1], lambda layer, s: seen.update({layer: s[0].clone()}))

    def run(sizes: Sequence[int]) -> tuple[list[float] | None, Tensor]:
        start, out = 0, []
        for size in sizes:
            placed.place(["other", "a"], np.array([2, size]), np.array([5, start]), np.array([9, n]))
            for layer in (0, 1):
                hidden = torch.cat([torch.ones(2, D_MODEL), seen[layer][start : start + size]])
                bank.apply(layer, hidden, torch.zeros_like(hidden))
                assert (hidden[:2] == 1).all()  # the other request is left alone
            out.append(hidden[2:])
            start += size
        return placed.scores("a"), torch.cat(out)

    score, written = run([n])
    assert score is not None
    assert not torch.equal(written, seen[1])
    assert torch.equal(written[: n - 1], seen[1][: n - 1])
    for sizes in ([3, n - 3], [1] * n, [n - 1, 1]):
        again, rewritten = run(sizes)
        assert again == pytest.approx(score, abs=1e-5)
        assert torch.allclose(rewritten, written, atol=1e-5)


def test_slots_are_given_back_and_scores_outlive_their_request(dial: Make) -> None:
    bank = DialBank([dial()], 4, D_MODEL, n_slots=3, n_tokens=8)
    placed = Rows(bank)
    for i in range(7):  # two slots serve any number of requests
        placed.begin(f"r{i}", request(bank.dials, {"normative": (1,)}, f"r{i}"))
        placed.place([f"r{i}"], np.array([2]), np.array([0]), np.array([2]))
        bank.apply(0, torch.full((2, D_MODEL), float(i)), torch.zeros(2, D_MODEL))
        placed.end(f"r{i}")
    expected = 3.0 * float(bank.dials[0].probe.weight.sum()) + bank.dials[0].probe.bias  # type: ignore[union-attr]
    assert placed.scores("r3") == pytest.approx([expected], abs=1e-5)
    placed.place(["plain"], np.array([4]), np.array([0]), np.array([4]))
    assert not placed.active
    assert (bank.slot == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"read": None, "probe": None, "calibration": None, "write": None, "actuator": OnsetBias(((1, 2),))},
         "reads the probability of openings"),
        ({"read": Locus("resid_mid", 1, "post_last")}, "resid_mid of layer 1 is not possible"),
        ({"write": Direction("w", unit(3), Locus("resid_post", 9, "post_last"), 1.0, 0.0)}, "layer 9; this model"),
        ({"opening": (replace(OPENED[0], vector=np.ones(16, dtype=np.float32) / 4),)}, "streams of 16 dimensions"),
        ({"by_category": recognising(Locus("resid_mid", 0, "post_last"))}, "resid_mid of layer 0 is not possible"),
        ({"by_category": recognising(Locus("resid_post", 2, "post_last"))}, "reads must come before writes"),
        ({"by_category": recognising(Locus("resid_post", 0, "post_last"), 16)}, "streams of 16 dimensions"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(dial: Make, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DialBank([replace(dial(), **changes)], 4, D_MODEL, 4, 8)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="32 dimensions; this model has 16"):
        DialBank([dial()], 4, 16, 4, 8)


def test_the_same_categories_are_recognised(dial: Make) -> None:
    rng = np.random.default_rng(0)
    read = CategoryRead(("one", "", "two"), Locus("resid_post", 0, "post_last"), rng.normal(size=(3, D_MODEL)) / 2,
                        rng.normal(size=3), 0.6)  # fmt: skip
    streams = np.random.default_rng(1).normal(size=(200, D_MODEL)).astype(np.float32)
    expected = read.recognised(streams)
    bank = DialBank([dial(by_category=CategoryThresholds(read, {"one": 0.2}))], 4, D_MODEL, 4, 8)
    places = bank.recognised(torch.tensor(streams.astype(np.float64) @ read.weight.T + read.bias).T).tolist()
    assert [bank.categories[place] for place in places] == expected
    assert min(expected.count("one"), expected.count("two"), places.count(1), places.count(3)) > 10  # the control


def test_dials_of_other_category_reads_are_refused(read: CategoryRead, dial: Make) -> None:
    dials = [dial(kind, by_category=CategoryThresholds(one, {}))
             for kind, one in (("normative", read), ("epistemic", replace(read)))]  # fmt: skip
    with pytest.raises(UserError, match="recognise categories by different probes"):
        DialBank(dials, 4, D_MODEL, 4, 8)
