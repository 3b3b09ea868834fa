"""Experiments and dials write in the same way, equal to a per-token reference, without waiting for a device."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from extract.model.edit import Edit, Pass
from probes.direction import Direction, Locus
from probes.means import unit
from steering.ablation import ablation
from steering.ablation_variant import VARIANTS
from steering.actuator import Addition, Affine, Clamp, StreamActuator
from steering.interventions import DeviceCopies, add, affine, clamp
from steering.writer import GatedWriter, Writer, joint_edits

D, ROWS = 16, 3
R = unit(np.random.default_rng(0).standard_normal(D)).astype(np.float64)  # it must be cast
DIRECTION = Direction("d", R, Locus("resid_post", 1, "post_last"), 3.0, -2.0, later_means={2: (4.0, -4.0)})
OBLIQUE = replace(DIRECTION, vector=unit(R + np.random.default_rng(1).standard_normal(D) / 4))
ACTUATORS = [Affine(0.5), Addition(), Clamp()]
TABLES = [(2, D), (9, 2), (9, 2, 2)]  # of two dials: directions, bounds and solvers of their joint states
WRITERS = ["affine", "addition", "clamp", "two dials"]
WAITS = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select"}
passes = st.builds(Pass, st.integers(0, 9), st.integers(1, 6), st.integers(1, 8))


def written_by_token(actuator: StreamActuator, steps: int | None, gates: Tensor, pass_: Pass, stream: Tensor) -> Tensor:
    index = torch.arange(pass_.start, pass_.start + pass_.length)
    first = pass_.prompt_length - 1
    covered = (index >= first) & (index < first + (10**6 if steps is None else steps))
    r, gap = torch.tensor(R), DIRECTION.mean_positive - DIRECTION.mean_negative
    goal = torch.where(gates > 0, DIRECTION.mean_positive, DIRECTION.mean_negative)
    match actuator:
        case Affine(strength):
            changed = affine(stream, r, goal, strength)
        case Addition(strength):
            changed = add(stream, r, gates * strength * gap)
        case Clamp(strength):
            changed = clamp(stream, r, goal.where(gates > 0, -torch.inf), goal.where(gates < 0, torch.inf), strength)
    return torch.where((covered[None, :] & (gates != 0))[..., None], changed, stream)


def stream_of(pass_: Pass, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(ROWS, pass_.length, D, generator=torch.Generator().manual_seed(pass_.start)) * 5).to(dtype)


@given(passes, st.sampled_from(ACTUATORS), st.sampled_from([None, 1, 2, 4]),
       st.lists(st.sampled_from([-1, 0, 1]), min_size=ROWS, max_size=ROWS))  # fmt: skip
def test_what_a_dial_writes_is_a_write_at_each_token(pass_, actuator, steps, gates) -> None:
    stream, gate = stream_of(pass_), np.array(gates)[:, None]
    (edit,) = joint_edits([GatedWriter(Writer(DIRECTION, actuator, steps), lambda *_: gate)])
    found = edit.function(stream, pass_)
    wanted = written_by_token(actuator, steps, torch.tensor(gate), pass_, stream)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    left = np.flatnonzero(gate[:, 0] == 0)
    assert torch.equal(found[left], stream[left])


class Operations(TorchDispatchMode):
    """What torch runs: names of operations that make a host wait for its device, and tensors made from host data."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        of_vector = name in ("_to_copy", "lift_fresh") and tuple(found.shape) in ((D,), (ROWS, 1), (), *TABLES)
        by_mask = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in WAITS or of_vector or by_mask:
            self.waits.append(name)
        return found


def edits_of(name: str) -> list[Edit]:
    if name == "two dials":
        gated = [GatedWriter(Writer(DIRECTION, Affine()), lambda *_: np.array([[-1], [-1], [0]])),
                 GatedWriter(Writer(OBLIQUE, Clamp()), lambda *_: np.array([[1], [0], [0]]))]  # fmt: skip
        return joint_edits(gated)
    if name in WRITERS:
        actuator = dict(zip(WRITERS[:3], ACTUATORS, strict=True))[name]
        return joint_edits([GatedWriter(Writer(DIRECTION, actuator), lambda *_: np.array([[1], [-1], [0]]))])
    return ablation(DIRECTION, next(variant for variant in VARIANTS if variant.name == name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "name", ["affine", "addition", "clamp", "two dials", *(v.name for v in VARIANTS if v.tokens == "last_on")]
)
def test_a_decoded_token_waits_for_nothing(name, dtype) -> None:
    """The direction and the gates are sent at the prefill, once; a token after it sends and asks nothing."""
    edits = edits_of(name)
    prefill, tokens = Pass(0, 4, 4), [Pass(4 + i, 1, 4) for i in range(3)]
    with Operations() as control:
        DeviceCopies(R).on(torch.device("cpu"), torch.float64)
    assert control.waits  # a vector that is copied is seen
    for edit in edits:
        edit.function(stream_of(prefill, dtype), prefill)
    with Operations() as later:
        for pass_ in tokens:
            for edit in edits:
                edit.function(stream_of(pass_, dtype), pass_)
    assert later.waits == []


def test_a_copy_made_in_inference_mode_enters_gradients_later() -> None:
    copies = DeviceCopies(R)
    with torch.inference_mode():
        copies.on(torch.device("cpu"))
    stream = torch.ones(1, 1, D, requires_grad=True)
    (stream * copies.on(torch.device("cpu"))).sum().backward()
    np.testing.assert_allclose(stream.grad[0, 0].numpy(), R, rtol=1e-6)
