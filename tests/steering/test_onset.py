"""Onsets: their probability, and the bias in rows whose gate declines or permits, and in no other row."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from probes.direction import Direction, Locus
from steering.actuator import Addition, OnsetBias
from steering.controller import steering
from steering.dial import Dial
from steering.onset import OnsetProcessor, onset_probability
from tests.steering.conftest import unit
from tests.support.planted_dials import BENIGN, STRIKE, UNKNOWN

STEPS = 24
BIAS, ELSEWHERE = OnsetBias(((1,),)), Direction("o", unit(5), Locus("resid_post", 2, "post_last"), 1.0, -1.0)


@pytest.fixture(scope="module")
def openings(two_knobs, talk) -> dict[str, tuple[int, ...]]:
    """Take the two_knobs's own openings: the two ways of declining differ first at the sixth token."""
    refused, abstained = two_knobs.generate(two_knobs.batch(talk(STRIKE, UNKNOWN)), STEPS)
    shared = next(i for i, (a, b) in enumerate(zip(refused, abstained, strict=False)) if a != b)
    assert shared > 0
    return {"normative": tuple(refused[: shared + 1]), "epistemic": tuple(abstained[: shared + 1])}


def opening_dial(prefixes: tuple[tuple[int, ...], ...], kind: str = "normative", strength: float = 30.0,
                 threshold: float = 0.5, **changes: object) -> Dial:  # fmt: skip
    """Make a dial that reads the probability of its openings and biases them: it has no probe and no direction."""
    return Dial(kind, None, None, None, threshold, 0.0, None, OnsetBias(prefixes, strength), **changes)


def said(model: ChatModel, rows: list[Rendered], dials: list[Dial], thresholds: dict | None = None) -> list[str]:
    batch = model.batch(rows)
    with steering(model, dials, batch, rows, thresholds):
        return [model.decode(response) for response in model.generate(batch, STEPS)]


@pytest.mark.parametrize("prefixes", [((5,),), ((5,), (9,)), ((5, 7), (5, 8), (11,), (12, 13, 14), (12, 13, 15))])
def test_the_probability_is_the_product_of_the_tokens_summed_over_prefixes(model, rows, prefixes) -> None:
    found = onset_probability(model, model.batch(rows), prefixes)
    for i, row in enumerate(rows):
        expected = 0.0
        for prefix in prefixes:
            share = 1.0
            for n, token in enumerate(prefix):
                logits = model.logits(model.pad([[*row.token_ids, *prefix[:n]]], "left"))[0, -1]
                share *= float(logits.double().softmax(dim=-1)[token])
            expected += share
        assert found[i] == pytest.approx(expected, rel=1e-3, abs=1e-12)


def test_a_model_about_to_decline_so_is_read_as_that(two_knobs, talk, openings) -> None:
    batch = two_knobs.batch(talk(BENIGN, STRIKE, UNKNOWN))
    refusing = onset_probability(two_knobs, batch, [openings["normative"]])
    abstaining = onset_probability(two_knobs, batch, [openings["epistemic"]])
    assert (refusing > 0.5).tolist() == [False, True, False]
    assert (abstaining > 0.5).tolist() == [False, False, True]


def processed(prefixes: tuple[tuple[int, ...], ...], response: list[list[int]], gates: list[int],
              strength: float = 3.0, steps: int | None = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    ids = torch.tensor([[7, 7, *row] for row in response])
    before = torch.randn(len(response), 10, generator=torch.Generator().manual_seed(0))
    return before, OnsetProcessor(OnsetBias(prefixes, strength), 2, lambda: np.array(gates), steps)(ids, before)


def test_declining_raises_every_token_of_a_prefix_and_permitting_lowers_its_last() -> None:
    prefixes = ((1, 2), (1, 3), (4,))
    before, after = processed(prefixes, [[], [], []], [1, -1, 0])
    plain = before.log_softmax(dim=-1)
    odds = (after - plain) - (after - plain)[:, :1]  # token 0 is on no prefix
    assert odds[0].tolist() == pytest.approx([0, 3, 0, 0, 3, 0, 0, 0, 0, 0], abs=1e-5)
    assert odds[1].tolist() == pytest.approx([0, 0, 0, 0, -3, 0, 0, 0, 0, 0], abs=1e-5)
    assert torch.equal(after[2], before[2])
    assert after[:2].exp().sum(dim=1).tolist() == pytest.approx([1, 1])
    before, after = processed(prefixes, [[1], [1], [1]], [1, -1, 1])
    odds = after - before.log_softmax(dim=-1)
    odds = odds - odds[:, :1]
    assert odds[0].tolist() == pytest.approx([0, 0, 3, 3, 0, 0, 0, 0, 0, 0], abs=1e-5)
    assert odds[1].tolist() == pytest.approx([0, 0, -3, -3, 0, 0, 0, 0, 0, 0], abs=1e-5)


@pytest.mark.parametrize(
    ("response", "gates", "strength", "steps"),
    [
        ([[5], [2]], [1, -1], 3.0, None),  # off every prefix
        ([[1, 2], [1, 2]], [1, -1], 3.0, None),  # past it
        ([[1], [1]], [0, 0], 3.0, None),  # neutral
        ([[1], [1]], [1, -1], 0.0, None),  # no strength
        ([[1], [1]], [1, -1], 3.0, 1),  # the first step only
    ],
)
def test_where_nothing_is_to_be_biased_scores_are_bitwise_as_they_were(response, gates, strength, steps) -> None:
    before, after = processed(((1, 2),), response, gates, strength, steps)
    assert torch.equal(before, after)


def test_the_beams_of_a_prompt_have_its_gate() -> None:
    before, after = processed(((1, 2),), [[], [], [], []], [1, 0])
    assert [not torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, True, False, False]


def test_gates_on_the_onset_decide_how_a_response_opens(two_knobs, talk, openings) -> None:
    rows, dial = talk(BENIGN, STRIKE, UNKNOWN), opening_dial((openings["normative"],))
    opening = two_knobs.decode(openings["normative"])
    plain = said(two_knobs, rows, [])
    assert [text.startswith(opening) for text in plain] == [False, True, False]
    assert all(text.startswith(opening) for text in said(two_knobs, rows, [dial], {"normative": 0.0}))
    assert not any(text.startswith(opening) for text in said(two_knobs, rows, [dial], {"normative": 1.0}))
    mixed = said(two_knobs, rows, [dial], {"normative": [math.nan, 1.0, 0.0]})
    assert mixed[0] == plain[0]
    assert [text.startswith(opening) for text in mixed] == [False, False, True]
    assert said(two_knobs, rows, [opening_dial((openings["normative"],), strength=0.0)], {"normative": 0.0}) == plain


def test_both_onsets_are_read_before_either_acts_and_normative_decides_first(two_knobs, talk, openings) -> None:
    rows = talk(BENIGN, STRIKE, UNKNOWN)
    dials = [opening_dial((openings[kind],), kind) for kind in ("epistemic", "normative")]
    batch = two_knobs.batch(rows)
    with steering(two_knobs, dials, batch, rows, {"normative": 0.0, "epistemic": 0.0}) as readings:
        texts = [two_knobs.decode(response) for response in two_knobs.generate(batch, STEPS)]
    for kind in ("normative", "epistemic"):
        expected = onset_probability(two_knobs, batch, [openings[kind]])
        np.testing.assert_array_equal(readings.probability[kind], expected)
    assert readings.gate["epistemic"].tolist() == [0, 0, 0]
    assert all(text.startswith(two_knobs.decode(openings["normative"])) for text in texts)


def test_a_probe_may_gate_an_onset_bias(two_knobs, talk, planted, openings) -> None:
    dial = planted("normative", write=None, actuator=OnsetBias((openings["normative"],), 30.0))
    opening = two_knobs.decode(openings["normative"])
    for threshold, declines in ((0.0, True), (1.0, False)):
        texts = said(two_knobs, talk(BENIGN, STRIKE, UNKNOWN), [dial], {"normative": threshold})
        assert [text.startswith(opening) for text in texts] == [declines] * 3


def test_watched_beams_and_a_stream_to_be_read_without_a_probe_are_refused(two_knobs, talk) -> None:
    with pytest.raises(UserError, match="beam search knows its tokens only at the end"):
        two_knobs.generate(two_knobs.batch(talk(BENIGN)), 4, num_beams=2, watch=lambda tokens: None)
    with pytest.raises(ValueError, match="the normative dial reads its onset prefixes, not the stream"):
        opening_dial(((1,),)).probability(np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"actuator": BIAS}, "unless its actuator is an onset bias, which has none"),
        ({"write": None}, "unless its actuator is an onset bias"),
        ({"probe": None}, "a locus, a probe and a calibration: give all or none"),
        ({"read": None, "probe": None, "calibration": None}, "a dial without a probe reads its onset prefixes"),
        ({"write": None, "actuator": BIAS, "reread": True}, "must write at tokens said, into the stream"),
        ({"steps": 1, "reread": True}, "must write at tokens said, into the stream"),
        ({"steps": 0}, r"a dial writes at 0 steps; expected 1 \(the prefill\) or more"),
        ({"later": True, "actuator": Addition()}, "its actuator must be affine or clamp"),
        ({"later": True, "actuator": BIAS, "write": None}, "its actuator must be affine or clamp"),
        ({"opening": (ELSEWHERE,)}, "opening directions are written where its own direction is"),
        ({"opening": (ELSEWHERE,), "actuator": BIAS, "write": None}, "opening directions are written where its own"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(dial, parts, why) -> None:
    with pytest.raises(ValueError, match=why):
        dial(**parts)
