"""Writers with a constant gate and with a gate decided by a dial give the same edits, at the same layers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from probes.direction import Locus
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.controller import steering
from steering.dial import Dial, check_order
from steering.writer import ConstantGateWriter, Writer, held_edits

Make = Callable[..., Dial]
MEANS = {2: (5.0, -3.0), 3: (8.0, -6.0)}


@pytest.fixture
def later(dial: Make) -> Dial:
    return dial(later=True, write=replace(dial().write, later_means=MEANS))


def projections(model: ChatModel, rows: list[Rendered], dial: Dial, threshold: float) -> dict[int, np.ndarray]:
    """Return what lies along the write direction at the last prompt token, by layer, under one gate for all rows."""
    batch, seen = model.batch(rows), {}
    r = torch.tensor(dial.write.vector)  # type: ignore[union-attr]

    def look(layer: int) -> Edit:
        def function(stream: torch.Tensor, pass_: Pass) -> torch.Tensor:
            seen[layer] = (stream[:, -1] @ r).numpy()
            return stream

        return Edit("resid_post", layer, function)

    with steering(model, [replace(dial, threshold=threshold)], batch, rows), model.editing([look(1), look(2), look(3)]):
        model.generate(batch, 1)
    return seen


@pytest.mark.parametrize(("threshold", "side"), [(0.0, 0), (2.0, 1)])
def test_later_layers_get_their_own_class_means(
    model: ChatModel, rows: list[Rendered], later: Dial, threshold: float, side: int
) -> None:
    means = {1: (9.0, -7.0)} | MEANS
    found = projections(model, rows, later, threshold)
    for layer, goal in means.items():
        np.testing.assert_allclose(found[layer], goal[side], atol=1e-3)
    alone = projections(model, rows, replace(later, later=False), threshold)  # the control
    np.testing.assert_allclose(alone[1], means[1][side], atol=1e-3)
    assert all(np.abs(alone[layer] - means[layer][side]).max() > 0.1 for layer in MEANS)


def test_writes_at_later_layers_still_come_after_every_read(dial: Make, later: Dial) -> None:
    check_order([later])
    with pytest.raises(Exception, match="reads resid_post at layer 2 but one writes resid_post at layer 1"):
        check_order([later, dial("epistemic", read=Locus("resid_post", 2, "post_last"), write=later.write)])


@pytest.mark.parametrize("actuator", [Addition(), OnsetBias(((3,),))])
def test_what_adds_up_is_not_written_at_every_layer(later: Dial, actuator: Addition | OnsetBias) -> None:
    direction = None if isinstance(actuator, OnsetBias) else later.write
    with pytest.raises(ValueError, match="its actuator must be affine or clamp"):
        Writer(direction, actuator, later=True)


@pytest.mark.parametrize("changes", [{"actuator": Affine(0.5)}, {"actuator": Clamp(), "steps": 2}, {"later": True},
                                     {"actuator": OnsetBias(((3, 5),)), "write": None}])  # fmt: skip
def test_a_held_gate_is_a_dial_that_always_decides_so(
    model: ChatModel, rows: list[Rendered], later: Dial, changes: dict
) -> None:
    dial, batch = replace(later, **{"later": False} | changes), model.batch(rows)
    said = {}
    for gate, threshold in ((1, 0.0), (-1, 2.0)):
        with steering(model, [replace(dial, threshold=threshold)], batch, rows):
            decided = model.generate(batch, 8, 8)
        held = ConstantGateWriter(dial.writer, gate)
        with model.editing(held_edits([held]), held.processors(batch.prompt_length)):
            said[gate] = model.generate(batch, 8, 8)
        assert said[gate] == decided
    assert said[1] != said[-1]
    left = ConstantGateWriter(dial.writer, 0)
    assert held_edits([left]) == left.processors(1) == []
