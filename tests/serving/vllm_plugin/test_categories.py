"""Categories as tensors are recognised, and have thresholds, as the dials' own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from extract.errors import UserError
from probes.direction import Locus
from serving.vllm_plugin.bank import DialBank
from serving.vllm_plugin.categories import Categories
from steering.dial import CategoryRead, CategoryThresholds
from steering.gates import resolved
from tests.serving.vllm_plugin.test_bank import Make
from tests.steering.conftest import dial, model, rows, streams

__all__ = ["dial", "model", "rows", "streams"]  # fixtures
NAMES = ("one", "", "two")


@pytest.fixture
def read() -> CategoryRead:
    rng = np.random.default_rng(0)
    return CategoryRead(NAMES, Locus("resid_post", 0, "post_last"), rng.normal(size=(3, 8)), rng.normal(size=3), 0.6)


def test_the_same_categories_are_recognised(read: CategoryRead) -> None:
    streams = np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32)
    expected = read.recognised(streams)
    score = torch.tensor(streams.astype(np.float64) @ read.weight.T + read.bias).T
    of = Categories(read, [], torch.device("cpu"))
    assert [of.name(each) for each in score.T] == expected
    unsure = sum(place == len(NAMES) for place in of.recognised(score).tolist())
    assert min(expected.count("one"), expected.count("two"), expected.count(None) - unsure, unsure) > 10  # the control


def test_the_same_thresholds_are_found(read: CategoryRead, dial: Make) -> None:
    dials = [dial("normative", by_category=CategoryThresholds(read, {"one": 0.2, "two": 1.01})),
             dial("epistemic", by_category=CategoryThresholds(read, {"two": 0.7, "": 0.9}))]  # fmt: skip
    score = torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 0, 9], [1, 0, 0], [torch.nan] * 3]).T
    category = ["one", None, "two", None, None]
    of = Categories(read, dials, torch.device("cpu"))
    for given in ([None] * 5, [0.1, None, 0.1, 0.1, None]):
        own = torch.tensor([[tau is None for tau in given]] * 2)
        taus = torch.tensor([[one.threshold if tau is None else tau for tau in given] for one in dials])
        expected = [resolved(one, given, category)[0] for one in dials]
        np.testing.assert_allclose(of.thresholds(score, taus, own).numpy(), expected, atol=1e-6)


def test_what_is_off_stays_off(read: CategoryRead, dial: Make) -> None:
    of = Categories(read, [dial(by_category=CategoryThresholds(read, {"one": 0.2}))], torch.device("cpu"))
    found = of.thresholds(torch.tensor([[9.0], [0], [0]]), torch.tensor([[torch.nan]]), torch.tensor([[False]]))
    assert found.isnan().all()


def test_dials_of_other_category_reads_are_refused(read: CategoryRead, dial: Make) -> None:
    dials = [dial(kind, by_category=CategoryThresholds(one, {}))
             for kind, one in (("normative", read), ("epistemic", replace(read)))]  # fmt: skip
    with pytest.raises(UserError, match="recognise categories by different probes"):
        DialBank(dials, 4, 32, 4, 8)
