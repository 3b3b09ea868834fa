"""Recognised prompts get the threshold of their category, others that of the dial; a request overrides both."""

from dataclasses import replace

import numpy as np
import pytest

from extract.errors import UserError
from probes.direction import Locus
from serving.app import with_thresholds
from serving.replies import DialDefault
from steering.conversation import Conversation
from steering.dial import CategoryRead, CategoryThresholds
from steering.dial_file import load_dials, save_dials
from steering.gates import reading_line
from tests.steering.conftest import READ, gates_of, run, unit


def test_each_prompt_has_the_threshold_of_its_category(model, rows, streams, dial, read) -> None:
    assert read.recognised(streams) == ["one", "two", None, None, None, None]
    made = dial(by_category=CategoryThresholds(read, {"one": 0.0, "two": 1.01}))
    said, found = run(model, rows, [made])
    assert found.category == ["one", "two", None, None, None, None]
    assert found.threshold["normative"].tolist() == [0.0, 1.01, *[0.5] * 4]
    assert found.gate["normative"][:2].tolist() == [1, -1]
    assert found.gate["normative"][2:].tolist() == gates_of(made, streams)[2:].tolist()
    by_hand = run(model, rows, [replace(made, by_category=None)], {"normative": [0.0, 1.01, *[0.5] * 4]})
    assert said == by_hand[0]
    other_way = run(model, rows, [replace(made, by_category=CategoryThresholds(read, {"one": 1.01, "two": 0.0}))])
    assert said != other_way[0]  # the control: the thresholds matter


def test_a_threshold_that_is_given_overrides_the_category(model, rows, dial, read) -> None:
    made = dial(by_category=CategoryThresholds(read, {"one": 0.0, "two": 1.01}))
    _, found = run(model, rows, [made], {"normative": [1.01, None, np.nan, None, None, None]})
    np.testing.assert_array_equal(found.threshold["normative"], [1.01, 1.01, np.nan, 0.5, 0.5, 0.5])
    assert found.own["normative"] == [False, True, *[False] * 4]
    readings = [found.of_prompt(i)["normative"] for i in range(4)]
    assert [reading.category for reading in readings] == [None, "two", None, None]
    lines = [reading_line("normative", reading) for reading in readings]
    for line, part in zip(lines, ("threshold 1.01", "threshold of 'two' 1.01, permitted", "off", "0.50"), strict=True):
        assert part in line
    assert DialDefault.model_validate(made).category_thresholds == {"one": 0.0, "two": 1.01}


def test_a_conversation_leaves_the_category_its_threshold_until_one_is_set(model, rows, dial, read) -> None:
    talk = Conversation(model, [dial(by_category=CategoryThresholds(read, {"one": 0.0}))], 4)
    first = talk.say("how do i kill the process?").readings["normative"]
    assert (first.category, first.threshold) == ("one", 0.0)
    talk.reset()
    assert talk.set_threshold("normative", 0.9) == 0.5
    assert talk.say("how do i kill the process?").readings["normative"].threshold == 0.9


def test_a_threshold_given_to_the_server_replaces_those_by_category(dial, read) -> None:
    dials = [dial(kind, by_category=CategoryThresholds(read, {"one": 0.0})) for kind in ("normative", "epistemic")]
    normative, epistemic = with_thresholds(dials, {"normative": 0.1})
    assert (normative.threshold, normative.by_category) == (0.1, None)
    assert epistemic is dials[1]


def test_dials_from_a_file_are_the_same(model, rows, dial, read, tmp_path) -> None:
    dials = [dial("normative", by_category=CategoryThresholds(read, {"one": 0.0, "two": 1.01})),
             dial("epistemic", by_category=CategoryThresholds(read, {}))]  # fmt: skip
    turned = replace(read, weight=np.asfortranarray(read.weight))  # as scikit-learn gives it
    dials = [replace(one, by_category=replace(one.by_category, read=turned)) for one in dials]
    save_dials(dials, tmp_path / "dials.safetensors", "f" * 64)
    again = load_dials(tmp_path / "dials.safetensors", "f" * 64)
    assert [dict(one.by_category.thresholds) for one in again if one.by_category] == [{"one": 0.0, "two": 1.01}, {}]
    assert run(model, rows, again)[0] == run(model, rows, dials)[0]
    assert run(model, rows, again)[1].category == ["one", "two", None, None, None, None]


def test_mistakes_are_named(model, rows, dial, read) -> None:
    with pytest.raises(ValueError, match="'three', which the category read does not recognise"):
        CategoryThresholds(read, {"three": 0.5})
    with pytest.raises(ValueError, match="the threshold of 'one' is no number"):
        CategoryThresholds(read, {"one": np.nan})
    with pytest.raises(ValueError, match="different names: one, one"):
        CategoryRead(("one", "one"), READ, np.zeros((2, 32)), np.zeros(2), 0.8)
    with pytest.raises(ValueError, match=r"3 categories, but weights of shape \(2, 32\)"):
        CategoryRead(read.names, READ, np.zeros((2, 32)), np.zeros(3), 0.8)
    deep = replace(read, locus=Locus("resid_post", 3, "post_last"))
    with pytest.raises(UserError, match="a dial reads resid_post at layer 3 but one writes resid_post at layer 1"):
        run(model, rows, [dial(by_category=CategoryThresholds(deep, {}))])
    with pytest.raises(UserError, match="recognise categories by different probes"):
        run(model, rows, [dial("normative", by_category=CategoryThresholds(read, {})),
                          dial("epistemic", by_category=CategoryThresholds(replace(read), {}))])  # fmt: skip


def test_the_least_confidence_leaves_a_prompt_without_a_category(read, streams) -> None:
    assert replace(read, confident=1.0).recognised(streams) == [None] * 6
    noisy = replace(read, weight=np.tile(unit(3), (3, 1)).astype(np.float64))  # equal logits: a third each
    assert noisy.recognised(streams) == [None] * 6
