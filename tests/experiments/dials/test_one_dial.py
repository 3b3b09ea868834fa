"""The one-dial baseline writes what the two dials write: also the directions that the normative one opens."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials import write
from experiments.dials.write import either_writers
from experiments.run.config import SteerConfig
from probes.direction import Direction, Locus
from steering.actuator import Affine
from steering.writer import Writer

D = 8


def direction(name: str, layer: int, axis: int) -> Direction:
    return Direction(name, np.eye(D, dtype=np.float32)[axis], Locus("resid_post", layer, "post_last"), 1.0, -1.0)


def test_a_writer_where_the_normative_dial_writes_opens_what_that_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = (direction("over_refusal_0", 1, 3),)
    writers: dict[Any, Writer] = {
        "normative": Writer(direction("normative_write", 1, 0), Affine(), opening=opening),
        "epistemic": Writer(direction("epistemic_write", 2, 1), Affine()),
    }
    inputs: Any = SimpleNamespace(
        config=SimpleNamespace(steer=SteerConfig()), behaviour=None, store=SimpleNamespace(read=None, layers=())
    )
    monkeypatch.setattr(write, "either_samples", lambda behaviour: object())
    monkeypatch.setattr(
        write, "fit_write", lambda read, locus, *rest: direction("fitted", locus.layer, 2 + locus.layer)
    )
    found = either_writers(inputs, writers)
    assert [(one.direction.locus.layer, one.opening) for one in found if one.direction] == [(1, opening), (2, ())]
