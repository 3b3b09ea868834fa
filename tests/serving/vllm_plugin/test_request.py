"""What a request says of the dials: thresholds from a body, and where they read, checked before it is passed on."""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.model.chat_model import ChatModel
from probes.direction import Locus
from serving.app import with_thresholds
from serving.request_schema import AskedThresholds
from serving.vllm_plugin.bank import DialBank, Rows
from serving.vllm_plugin.plugin import suffix_of
from serving.vllm_plugin.request import FIELD, DialRequest, Suffix, checked, readings_of, thresholds_of, tokens_read
from steering.dial import CategoryRead, CategoryThresholds, Dial, Kind, Threshold
from steering.gates import Reading
from tests.steering.conftest import dial, model, read, rows, streams

__all__ = ["dial", "model", "read", "rows", "streams"]  # fixtures
Make = Callable[..., Dial]
OWN = Threshold(0.3)


def field(thresholds: dict[Kind, Threshold], read_at: dict | None = None) -> dict:
    return DialRequest(key="k", thresholds=thresholds, read_at=read_at).extra_args()[FIELD]


def test_thresholds_are_numbers_off_or_the_dials_own(dial: Make) -> None:
    dials = [dial("normative"), replace(dial("epistemic"), threshold=0.3)]
    assert thresholds_of({"temperature": 1}, dials) is None
    assert thresholds_of({"normative_threshold": 0.2}, dials) == {"normative": Threshold(0.2), "epistemic": OWN}
    assert thresholds_of({"epistemic_threshold": None}, dials) == {"normative": Threshold(0.5), "epistemic": OWN}
    found = thresholds_of({"epistemic_threshold": "off", "normative_threshold": 1}, dials)
    assert found == {"normative": Threshold(1.0), "epistemic": Threshold(None)}
    for wrong in (-0.1, 1.1, "on", True, [0.5], math.nan):
        with pytest.raises(ValueError, match=r"^epistemic_threshold: input should be .*'off'"):
            thresholds_of({"epistemic_threshold": wrong}, dials)
    with pytest.raises(ValueError, match="no epistemic dial"):
        thresholds_of({"epistemic_threshold": 0.5}, dials[:1])
    found = thresholds_of({"normative_threshold": 0.4, "epistemic_threshold": None}, dials[:1])
    assert found == {"normative": Threshold(0.4)}


def test_what_is_passed_on_comes_back(dial: Make, read: CategoryRead) -> None:
    dials = [dial("normative", by_category=CategoryThresholds(read, {"one": 0.95})), dial("epistemic")]
    thresholds = {"normative": dials[0].resolved(), "epistemic": Threshold(None)}
    given = json.loads(json.dumps(field(thresholds, {"normative": (3, 4), "epistemic": (5,), "category": (2,)})))
    found = checked(given, [1] * 6, dials, None)
    assert (found.key, found.thresholds) == ("k", thresholds)
    assert found.read_at == {"normative": (3, 4), "epistemic": (5,), "category": (2,)}


def test_a_prompt_must_end_as_the_template_does(dial: Make) -> None:
    suffix, given = Suffix((8, 9), {"normative": 1}), field({"normative": Threshold(0.25)})
    assert checked(given, [1, 2, 8, 9], [dial()], suffix).read_at == {"normative": (2,)}
    for prompt in ([1, 2, 8, 7], [9]):
        with pytest.raises(ValueError, match="does not end as the model's chat template ends"):
            checked(given, prompt, [dial()], suffix)
    with pytest.raises(ValueError, match="do not read at a fixed place before the end of every prompt"):
        checked(given, [1, 2, 8, 9], [dial()], None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nonsense", "expected what"),
        ("x" * 9999, "got 'xxx.{76}; in a request give normative_threshold and epistemic_threshold instead$"),
        (7, "expected what"),
        (["a"], "expected what"),
        ({"key": "k"}, "expected what"),
        *(({**field({"normative": Threshold(0.5)}, {"normative": (0,)}), name: value}, "expected what")
          for name, value in (("key", 3), ("key", None), ("thresholds", "x"), ("thresholds", {"normative": "x"}),
                              ("thresholds", {"normative": {"value": "x"}}), ("thresholds", {"other": {"value": 0.5}}),
                              ("thresholds", {}), ("read_at", "x"), ("read_at", [0]), ("read_at", {"normative": 0}),
                              ("read_at", {"normative": ["x"]}), ("more", 1))),
        (field({"normative": Threshold(0.5)}, {"normative": (4,)}), r"reads tokens \[4\] of a prompt of 3"),
        (field({"normative": Threshold(0.5)}, {}), r"reads tokens None"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(dial: Make, given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked(given, [1, 2, 3], [dial()], None)
    with pytest.raises(ValueError, match="not of embeddings"):
        checked(field({"normative": Threshold(0.5)}, {"normative": (0,)}), None, [dial()], None)


def test_where_dials_read_is_counted_from_the_end(model: ChatModel, dial: Make, read: CategoryRead) -> None:
    at = Locus("resid_post", 0, "inst_last")
    found = suffix_of(model.tokenizer, [dial("normative"), replace(dial("epistemic"), read=at)])
    assert found.before_end == {"normative": 0, "epistemic": len(found.tokens)}
    assert model.tokenizer.decode(found.tokens) == "<|end|><|assistant|>"
    assert suffix_of(model.tokenizer, [replace(dial(), read=Locus("resid_post", 0, "inst_mean"))]) is None
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template += "{% if thinks %}<|user|>{% endif %}"
    found = [suffix_of(tokenizer, [dial()], args) for args in (None, {"thinks": True})]
    assert [tokenizer.decode(one.tokens) for one in found] == ["<|end|><|assistant|>", "<|end|><|assistant|><|user|>"]
    of_category = CategoryThresholds(replace(read, locus=at), {})
    found = suffix_of(model.tokenizer, [dial(by_category=of_category)])
    assert found.before_end == {"normative": 0, "category": len(found.tokens)}


def test_readings_are_the_decisions(dial: Make, read: CategoryRead) -> None:
    dials = [dial("epistemic"), dial("normative", band=0.1, by_category=CategoryThresholds(read, {"one": 0.95}))]
    own: dict[Kind, Threshold] = {one.kind: one.resolved() for one in dials}
    assert readings_of(dials, [0.9, 0.8], None, own) == {
        "normative": Reading(0.9, 0.5, "decline", overruled=False),
        "epistemic": Reading(0.8, 0.5, "leave", overruled=True),
    }
    assert readings_of(dials, [0.55, 0.8], "one", {"normative": Threshold(0.5), "epistemic": Threshold(None)}) == {
        "normative": Reading(0.55, 0.5, "leave", overruled=False),
        "epistemic": Reading(0.8, None, "leave", overruled=False),
    }
    assert readings_of(dials, [0.8, 0.8], "one", own) == {
        "normative": Reading(0.8, 0.95, "permit", overruled=False, category="one"),
        "epistemic": Reading(0.8, 0.5, "decline", overruled=False),
    }
    assert readings_of(dials, [0.9, 0.8], "two", own)["normative"].category is None


@pytest.mark.parametrize("n_given", [0, 1, 2])
def test_thresholds_of_the_server_come_before_those_of_the_dials_file(model, rows, dial, read, n_given) -> None:
    """The model is computed with the file's dials, which do not know them; where none is left, no category is read."""
    taus: dict[Kind, float] = {"normative": 0.9, "epistemic": 0.8}
    file = [dial(kind, by_category=CategoryThresholds(read, {"one": 0.2})) for kind in taus]
    served = with_thresholds(file, dict(list(taus.items())[:n_given]))
    row = rows[0]
    sent = field(AskedThresholds().resolved(served), tokens_read(served, row))
    asked = checked(sent, row.token_ids, file, None)
    assert ("category" in asked.read_at) == (n_given < 2)
    if n_given == 0:
        with pytest.raises(ValueError, match="the category is read from tokens None of a prompt of"):
            checked({**sent, "read_at": {kind: [2] for kind in taus}}, row.token_ids, file, None)
    bank = DialBank(file, model.n_layers, model.d_model, n_slots=3, n_tokens=64)
    placed, n = Rows(bank), len(row.token_ids)
    placed.begin("k", asked)
    placed.place(["k"], np.array([n]), np.array([0]), np.array([n]))
    streams: list[Tensor] = []
    model.capture(model.batch([row]), "resid_post", [0], lambda _, s: streams.append(s[0].clone()))
    bank.apply(0, streams[0], torch.zeros_like(streams[0]))
    slot = torch.tensor([placed._slot["k"]])
    assert bank.limits(slot)[:, 0].tolist() == [*list(taus.values())[:n_given], 0.2, 0.2][:2]
    assert bank.categories[int(bank.recognised(bank.score[2:, slot]))] == ("one" if n_given < 2 else None)
