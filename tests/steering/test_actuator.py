"""The effect of each actuator on the projection for each gate; a strength of zero changes nothing."""

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.model.edit import Pass
from probes.direction import Direction, Locus
from probes.means import unit
from steering.actuator import (
    ActuatorRecord,
    Addition,
    Affine,
    Clamp,
    OnsetBias,
    StreamActuator,
    actuator_of,
    actuator_record,
)
from steering.interventions import clamp
from steering.writer import GatedWriter, Writer, joint_edits

D = 24
ON, OFF = 6.0, -4.0
STREAM = [Affine, Addition, Clamp]
DIRECTION = Direction("d", unit(np.random.default_rng(0).normal(size=D)).astype(np.float32),
                      Locus("resid_post", 0, "post_last"), ON, OFF)  # fmt: skip
R = torch.tensor(DIRECTION.vector)
GATE = torch.tensor([[1], [-1], [1]])


@pytest.fixture
def stream() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 4, D) * 10


def write(actuator: StreamActuator, stream: Tensor, gate: Tensor) -> Tensor:
    """Write as a dial with these gates does, at every token of a pass that starts with the last prompt token."""
    gated = GatedWriter(Writer(DIRECTION, actuator), lambda *_: gate.numpy())
    for edit in joint_edits([gated]):
        stream = edit.function(stream, Pass(0, stream.shape[1], 1))
    return stream


def expected(actuator: StreamActuator, before: Tensor, gate: Tensor) -> Tensor:
    mean = torch.where(gate > 0, ON, OFF).expand_as(before)
    match actuator:
        case Affine(strength):
            return before + strength * (mean - before)
        case Addition(strength):
            return before + gate * strength * (ON - OFF)
        case Clamp(strength):
            short = torch.where(gate > 0, before < ON, before > OFF)
            return torch.where(short, before + strength * (mean - before), before)


@pytest.mark.parametrize("kind", STREAM)
@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_the_projection_moves_as_defined_and_nothing_else(stream, kind, strength) -> None:
    out, before = write(kind(strength), stream, GATE), stream @ R
    assert (before > ON).any()  # control: some lie beyond the means, where a clamp leaves them
    assert (before < OFF).any()
    torch.testing.assert_close(out @ R, expected(kind(strength), before, GATE), atol=1e-4, rtol=0)
    assert (out - stream - (out @ R - before)[..., None] * R).abs().max() < 1e-4


@pytest.mark.parametrize("kind", STREAM)
def test_a_gate_a_token_is_each_token_alone(stream, kind) -> None:
    gates = torch.tensor([[1, -1, 1, 1], [-1, -1, 1, -1], [1, 1, 1, -1]])
    out = write(kind(), stream, gates)
    for t in range(4):
        torch.testing.assert_close(out[:, t], write(kind(), stream, gates[:, t : t + 1])[:, t])


@pytest.mark.parametrize("kind", STREAM)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zero_strength_is_bitwise_nothing(stream, kind, dtype) -> None:
    assert torch.equal(write(kind(0.0), stream.to(dtype), GATE), stream.to(dtype))
    assert not torch.equal(write(kind(0.1), stream, GATE), stream)


def test_clamp_moves_to_the_nearest_end_and_leaves_what_lies_between_bitwise(stream) -> None:
    out, before = clamp(stream, R, -3.0, 5.0), stream @ R
    torch.testing.assert_close(out @ R, before.clamp(-3.0, 5.0), atol=1e-4, rtol=0)
    inside = (before >= -3.0) & (before <= 5.0)
    assert inside.any()
    assert not inside.all()
    assert torch.equal(out[inside], stream[inside])
    torch.testing.assert_close(clamp(out, R, -3.0, 5.0), out, atol=1e-4, rtol=0)


@pytest.mark.parametrize("made", [Affine(0.5), Addition(2.0), Clamp(), OnsetBias(((1, 2), (3,)), 4.0)])
def test_a_record_gives_the_actuator_back(made) -> None:
    assert actuator_of(actuator_record(made)) == made


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"name": "push"}, "no such actuator: 'push'; expected one of affine, addition, clamp, onset_bias"),
        *(
            ({"name": name, "strength": strength}, "strength is .*; expected a finite number, 0 or above")
            for name in ("affine", "addition", "clamp")
            for strength in (-1.0, float("nan"), float("inf"))
        ),
        ({"name": "onset_bias", "prefixes": ()}, "an onset bias needs prefixes of at least one token each"),
        ({"name": "onset_bias", "prefixes": ((1,), ())}, "an onset bias needs prefixes"),
        ({"name": "onset_bias", "prefixes": ((1, 2, 3), (1, 2))}, r"onset prefix \[1, 2\] is a prefix of another one"),
    ],
)
def test_what_is_no_actuator_is_refused(record, why) -> None:
    with pytest.raises(ValueError, match=why):
        actuator_of(ActuatorRecord.model_validate(record))
