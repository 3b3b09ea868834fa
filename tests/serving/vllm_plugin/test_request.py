"""What a request says of the dials: thresholds from a body, and where they read, checked before it is passed on."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from probes.direction import Locus
from serving.server import with_thresholds
from serving.vllm_plugin.bank import DialBank
from serving.vllm_plugin.engine import given_thresholds
from serving.vllm_plugin.plugin import suffix_of
from serving.vllm_plugin.reading import reports_of
from serving.vllm_plugin.request import FIELD, Suffix, asked, check, extra_args, thresholds_of, tokens_read
from serving.vllm_plugin.rows import Rows
from steering.dial import CategoryRead, CategoryThresholds, Dial, Kind
from tests.steering.conftest import dial, model, read, rows, streams

__all__ = ["dial", "model", "read", "rows", "streams"]  # fixtures
Make = Callable[..., Dial]


def test_thresholds_are_numbers_off_or_the_dials_own(dial: Make) -> None:
    dials = [dial("normative"), replace(dial("epistemic"), threshold=0.3)]
    assert thresholds_of({"temperature": 1}, dials) is None
    assert thresholds_of({"normative_threshold": 0.2}, dials) == {"normative": 0.2}  # the other has its own
    assert thresholds_of({"epistemic_threshold": None}, dials) == {}
    found = thresholds_of({"epistemic_threshold": "off", "normative_threshold": 1}, dials)
    assert found is not None
    assert math.isnan(found["epistemic"])
    assert found["normative"] == 1.0
    for wrong in (-0.1, 1.1, "on", True, [0.5], float("nan")):
        with pytest.raises(ValueError, match="epistemic_threshold: expected a number from 0 to 1"):
            thresholds_of({"epistemic_threshold": wrong}, dials)
    with pytest.raises(ValueError, match="no epistemic dial"):
        thresholds_of({"epistemic_threshold": 0.5}, dials[:1])
    assert thresholds_of({"normative_threshold": 0.4, "epistemic_threshold": None}, dials[:1]) == {"normative": 0.4}


def test_what_is_passed_on_comes_back(dial: Make) -> None:
    given = extra_args("k", {"normative": 0.25, "epistemic": math.nan}, {"normative": (3, 4), "epistemic": [5]})[FIELD]
    assert "nan" not in repr(given)  # which JSON has not
    check(given, [1] * 6, [dial("normative"), dial("epistemic")], None)
    found = asked(given)
    assert found.key == "k"
    assert found.thresholds["normative"] == 0.25
    assert math.isnan(found.thresholds["epistemic"])
    assert found.read_at == {"normative": (3, 4), "epistemic": (5,)}


def test_a_prompt_must_end_as_the_template_does(dial: Make) -> None:
    suffix = Suffix((8, 9), {"normative": 1})
    given = extra_args("k", {"normative": 0.25}, None)[FIELD]
    check(given, [1, 2, 8, 9], [dial()], suffix)
    assert given["read_at"] == {"normative": [2]}
    for prompt in ([1, 2, 8, 7], [9]):
        with pytest.raises(ValueError, match="does not end as the model's chat template ends"):
            check(extra_args("k", {"normative": 0.25}, None)[FIELD], prompt, [dial()], suffix)
    with pytest.raises(ValueError, match="do not read at a fixed place before the end of every prompt"):
        check(extra_args("k", {"normative": 0.25}, None)[FIELD], [1, 2, 8, 9], [dial()], None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nonsense", "expected what"),
        ("x" * 9999, "got 'xxx.{76}; in a request give normative_threshold and epistemic_threshold instead$"),
        (7, "expected what"),
        (["a"], "expected what"),
        ({"key": "k"}, "expected what"),
        *(({**extra_args("k", {"normative": 0.5}, {"normative": [0]})[FIELD], name: value}, "expected what|a number")
          for name, value in (("key", 3), ("key", None), ("thresholds", "x"), ("thresholds", {"normative": "x"}),
                              ("thresholds", {"normative": True}), ("thresholds", {"other": 0.5}), ("off", None),
                              ("off", ["other"]), ("off", [[]]), ("read_at", "x"), ("read_at", [0]),
                              ("read_at", {"normative": 0}), ("read_at", {"normative": ["0"]}),
                              ("read_at", {"normative": [0.0]}))),
        (extra_args("k", {"normative": 7.0}, {"normative": [0]})[FIELD], "normative_threshold: expected a number"),
        (extra_args("k", {"normative": 0.5}, {"normative": [4]})[FIELD], r"reads tokens \[4\] of a prompt of 3"),
        (extra_args("k", {"normative": 0.5}, {})[FIELD], r"reads tokens None"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(dial: Make, given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(given, [1, 2, 3], [dial()], None)
    with pytest.raises(ValueError, match="not of embeddings"):
        check(extra_args("k", {"normative": 0.5}, {"normative": [0]})[FIELD], None, [dial()], None)


def test_where_dials_read_is_counted_from_the_end(model: ChatModel, dial: Make, read: CategoryRead) -> None:
    at = Locus("resid_post", 0, "inst_last")
    found = suffix_of(model.tokenizer, [dial("normative"), replace(dial("epistemic"), read=at)])
    assert found is not None
    assert found.before_end == {"normative": 0, "epistemic": len(found.tokens)}
    assert model.tokenizer.decode(found.tokens) == "<|end|><|assistant|>"
    assert suffix_of(model.tokenizer, [replace(dial(), read=Locus("resid_post", 0, "inst_mean"))]) is None
    of_category = CategoryThresholds(replace(read, locus=at), {})
    found = suffix_of(model.tokenizer, [dial(by_category=of_category)])
    assert found is not None
    assert found.before_end == {"normative": 0, "category": len(found.tokens)}


def test_reports_are_the_decisions(dial: Make) -> None:
    dials = [dial("epistemic"), replace(dial("normative"), band=0.1)]
    normative, epistemic = reports_of(dials, [0.9, 0.8], None, {})
    assert (normative.kind, normative.gate, epistemic.gate, epistemic.overruled) == ("normative", 1, 0, True)
    normative, epistemic = reports_of(dials, [0.55, 0.8], None, {"normative": 0.5, "epistemic": math.nan})
    assert (normative.gate, epistemic.gate, epistemic.overruled) == (0, 0, False)


def test_reports_name_the_category_whose_threshold_decided(dial: Make, read: CategoryRead) -> None:
    dials = [dial("normative", by_category=CategoryThresholds(read, {"one": 0.95})), dial("epistemic")]
    normative, epistemic = reports_of(dials, [0.9, 0.8], "one", {})
    assert (normative.threshold, normative.category, normative.gate) == (0.95, "one", -1)
    assert (epistemic.threshold, epistemic.category, epistemic.gate) == (0.5, None, 1)
    normative, _ = reports_of(dials, [0.9, 0.8], "one", {"normative": 0.2})
    assert (normative.threshold, normative.category, normative.gate) == (0.2, None, 1)
    assert reports_of(dials, [0.9, 0.8], "two", {})[0].category is None


def test_a_dial_that_a_request_does_not_name_has_its_own_threshold(dial: Make, read: CategoryRead) -> None:
    dials = [dial("normative", by_category=CategoryThresholds(read, {"one": 0.95})), dial("epistemic")]
    given = extra_args("k", {"epistemic": 0.4}, {"normative": [2], "epistemic": [2], "category": [2]})[FIELD]
    check(given, [1, 2, 3], dials, None)
    assert asked(given).thresholds == {"epistemic": 0.4}
    assert asked(given).read_at["category"] == (2,)
    given = extra_args("k", {}, {"normative": [2], "epistemic": [2]})[FIELD]
    with pytest.raises(ValueError, match="the category is read from tokens None of a prompt of 3"):
        check(given, [1, 2, 3], dials, None)


@pytest.mark.parametrize("n_given", [1, 2])
def test_thresholds_of_the_server_come_before_those_of_the_dials_file(
    model: ChatModel, rows: list[Rendered], dial: Make, read: CategoryRead, n_given: int
) -> None:
    """The model is computed with the file's dials, which do not know them; where none is left, no category is read."""
    taus: dict[Kind, float] = {"normative": 0.9, "epistemic": 0.8}
    file = [dial(kind, by_category=CategoryThresholds(read, {"one": 0.2})) for kind in taus]
    served = with_thresholds(file, dict(list(taus.items())[:n_given]))
    sent = given_thresholds(served, {"normative": None})
    assert sent == dict(list(taus.items())[:n_given])
    assert given_thresholds(served, {"normative": 0.3, "epistemic": math.nan})["normative"] == 0.3
    row = rows[0]
    given = extra_args("k", sent, tokens_read(served, row))[FIELD]
    check(given, row.token_ids, file, None)
    assert ("category" in given["read_at"]) == (n_given == 1)
    bank = DialBank(file, model.n_layers, model.d_model, n_slots=3, n_tokens=64)
    placed, n = Rows(bank), len(row.token_ids)
    placed.begin("k", asked(given))
    placed.place(["k"], np.array([n]), np.array([0]), np.array([n]))
    streams: list[Tensor] = []
    model.capture(model.batch([row]), "resid_post", [0], lambda _, s: streams.append(s[0].clone()))
    bank.apply(0, streams[0], torch.zeros_like(streams[0]))
    limits = bank.limits(torch.tensor([placed._slot["k"]]))[:, 0].tolist()
    assert limits == pytest.approx([0.9, 0.2 if n_given == 1 else 0.8])
    scores = placed.scores("k")
    assert scores is not None
    assert bank.categories is not None
    assert bank.categories.name(torch.tensor(scores[2:])) == ("one" if n_given == 1 else None)
