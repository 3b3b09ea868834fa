"""Interchanges change decisions, a step reduces the loss, and a seed gives the same weights."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from organisms.grammar import Grammar
from organisms.interchange import choose_sources, choose_variables
from organisms.spec import OrganismSpec
from organisms.training import build_model, train

LOSSES = {"plain", "interchange", "readable", "margin", "quiet"}


def _losses(spec: OrganismSpec, tokenizer: PreTrainedTokenizerFast) -> tuple[torch.nn.Module, list[dict[str, float]]]:
    losses_by_step: list[dict[str, float]] = []
    model = train(spec, Grammar(spec), tokenizer, lambda step, losses: losses_by_step.append({"step": step, **losses}))
    return model, losses_by_step


def test_every_row_interchanges_some_set_and_half_take_it_from_rows_that_decide_differently() -> None:
    chosen = choose_variables((4000, 2), np.random.default_rng(0))
    assert chosen.any(axis=1).all()
    assert {tuple(row) for row in chosen} == {(True, False), (False, True), (True, True)}
    assert choose_variables((50, 1), np.random.default_rng(0)).all()
    values = np.random.default_rng(1).random((4000, 1)) < 0.05  # chance alone would give one in ten
    differing = (values[choose_sources(values, np.random.default_rng(2))] != values).any(axis=1).mean()
    assert differing == pytest.approx(0.5 + 0.5 * 2 * 0.05 * 0.95, abs=0.04)


def test_training_lowers_the_loss(organism, tokenizer) -> None:
    spec = organism(training={"steps": 30, "batch_size": 16, "learning_rate": 5e-3})
    _, losses_by_step = _losses(spec, tokenizer)
    assert [t["step"] for t in losses_by_step] == list(range(1, 31))
    assert set(losses_by_step[0]) == {"step", *LOSSES}
    assert losses_by_step[-1]["plain"] < 0.7 * losses_by_step[0]["plain"]
    assert losses_by_step[-1]["interchange"] < 0.8 * losses_by_step[0]["interchange"]
    assert all(np.isfinite(list(t.values())).all() for t in losses_by_step)


def test_the_seed_decides_the_weights(organism, tokenizer) -> None:
    (one, losses_by_step), (two, again) = (_losses(organism(), tokenizer) for _ in range(2))
    assert losses_by_step == again
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    other = build_model(organism(seed=4), tokenizer)
    assert not torch.equal(build_model(organism(), tokenizer).lm_head.weight, other.lm_head.weight)
