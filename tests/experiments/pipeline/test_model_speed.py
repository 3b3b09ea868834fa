"""The speed of a model is recovered from its passes: what a token costs, and what a pass costs whatever it holds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from experiments.pipeline import model_speed
from experiments.pipeline.duration import Batches, Step, seconds
from experiments.pipeline.footprint import Footprint
from experiments.pipeline.machine import Machine
from experiments.pipeline.model_speed import MEASURED, measure_model

SHAPE = Footprint(parameters=10**8, width=4, n_layers=20, d_model=64, d_ff=256, d_kv=16, vocabulary=1000)
HERE = Machine("two cores", "measured now", 1e11, 1e10, 10**10, (1e-4, 6e-4), 4)


class Timed:
    """A stand-in whose passes advance a clock by `a_token` seconds for each token and `a_pass` for each pass."""

    def __init__(self, a_token: float, a_pass: float) -> None:
        self.a_token, self.a_pass, self.now = a_token, a_pass, 0.0

    def batch(self, rows: list[SimpleNamespace]) -> SimpleNamespace:
        return SimpleNamespace(tokens=torch.zeros(len(rows), max(len(row.token_ids) for row in rows)))

    def generate(self, batch: SimpleNamespace, most: int, least: int = 0) -> None:
        self.now += batch.tokens.numel() * self.a_token + self.a_pass
        self.now += (most - 1) * (len(batch.tokens) * self.a_token + self.a_pass)


@pytest.mark.parametrize(("a_token", "a_pass"), [(2e-3, 0.05), (1e-4, 0.0), (1e-5, 0.3)])
def test_both_costs_are_recovered(monkeypatch: pytest.MonkeyPatch, a_token: float, a_pass: float) -> None:
    model = Timed(a_token, a_pass)
    monkeypatch.setattr(model_speed.time, "perf_counter", lambda: model.now)
    rendered = [SimpleNamespace(token_ids=[0] * n) for n in (5, 90, *[40] * 16, 7, 300)]
    found = measure_model(model, rendered, 16, SHAPE, HERE)  # type: ignore[arg-type]
    assert 2 * SHAPE.parameters / found.flops == pytest.approx(a_token, rel=1e-6)
    assert SHAPE.n_layers * found.launch[0] == pytest.approx(a_pass, rel=1e-6, abs=1e-9)
    batches = Batches(tokens=640, completions=16, prompt_tokens=40.0, max_new_tokens=24)
    lasting = seconds([Step("say", completions=32)], SHAPE, found, batches, MEASURED)
    assert lasting == pytest.approx(2 * (640 * a_token + a_pass + 24 * (16 * a_token + a_pass)), rel=1e-6)
