"""Writers with a constant gate and with a gate decided by a dial give the same edits, at the same layers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.controller import steering
from steering.dial import Dial
from steering.writer import ConstantGateWriter, Writer, held_edits

Make = Callable[..., Dial]
MEANS = {2: (5.0, -3.0), 3: (8.0, -6.0)}


@pytest.fixture
def later(dial: Make) -> Dial:
    return dial(later=True, write=replace(dial().write, later_means=MEANS))


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
