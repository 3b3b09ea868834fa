"""Algebra of the interventions and their placement: only the tokens of the scope, only the component along r."""

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.model.edit import Pass
from steering.interventions import NEARLY_PARALLEL, add, affine, for_rows, place, set_projections, solver, zero

D = 24


def unit(seed: int, d: int = D) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(d, generator=torch.Generator().manual_seed(seed)), dim=0)


@pytest.fixture
def stream() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 5, D) * 10


R = unit(1)


@pytest.mark.parametrize("target", [0.0, 120.0, torch.tensor([[1.0], [-2.0], [30.0]])], ids=["0", "120", "each row"])
def test_affine_sets_the_projection_and_nothing_else(stream, target) -> None:
    out = affine(stream, R, target)
    torch.testing.assert_close(out @ R, torch.as_tensor(target).expand(3, 5), atol=1e-4, rtol=0)
    across = torch.linalg.qr(torch.cat([R[:, None], torch.randn(D, D - 1)], dim=1)).Q[:, 1:]  # the rest of a basis
    torch.testing.assert_close(out @ across, stream @ across, atol=1e-4, rtol=0)
    torch.testing.assert_close(affine(out, R, target), out, atol=1e-4, rtol=0)


def test_zero_twice_is_zero_once_and_leaves_no_component_as_another_direction_would(stream) -> None:
    once = zero(stream, R)
    torch.testing.assert_close(once @ R, torch.zeros(3, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(zero(once, R), once, atol=1e-5, rtol=0)
    assert ((once.norm(dim=-1) ** 2 + (stream @ R) ** 2 - stream.norm(dim=-1) ** 2).abs() < 1e-2).all()
    for seed in range(2, 7):
        assert ((zero(stream, unit(seed)) @ R).abs() > 0.1).any()
        assert not torch.allclose(affine(stream, unit(seed), 5.0) @ R, torch.tensor(5.0), atol=0.1)


def test_add_moves_by_the_amount_along_the_direction(stream) -> None:
    out = add(stream, R, -6.0)
    torch.testing.assert_close(out @ R, stream @ R - 6.0, atol=1e-4, rtol=0)
    torch.testing.assert_close(out - stream, (-6.0 * R).expand(3, 5, D), atol=1e-5, rtol=0)
    assert torch.equal(add(stream, R, 0.0), stream)
    torch.testing.assert_close(add(out, R, 6.0), stream, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_streams_are_rounded_once_from_float32(stream, dtype) -> None:
    stream = stream.to(dtype)
    for act in (lambda s: affine(s, R, 3.0), lambda s: zero(s, R), lambda s: add(s, R, 3.0)):
        out = act(stream)
        assert out.dtype == dtype
        assert torch.equal(out, act(stream.float()).to(dtype))
        assert torch.equal(act(stream), out)


def test_projections_of_many_equal_terms_keep_their_bits_in_bfloat16() -> None:
    """Summed in bfloat16, 256 + 1 would stay 256."""
    r, stream = torch.full((1024,), 1 / 32), torch.full((1, 1024), 1.0, dtype=torch.bfloat16)
    torch.testing.assert_close(affine(stream, r, 32.0), stream)


def test_inputs_are_never_edited(stream) -> None:
    before, r = stream.clone(), R.clone()
    pass_ = Pass(0, 5, 5)
    edit = place("resid_post", 0, "all", lambda s: affine(s, r, 1.0))
    for out in (affine(stream, r, 1.0), zero(stream, r), add(stream, r, 2.0), edit.function(stream, pass_),
                for_rows(edit, slice(0, 2)).function(stream, pass_)):  # fmt: skip
        assert out.shape == stream.shape
        assert not torch.equal(out, stream)
        assert torch.equal(stream, before)
        assert torch.equal(r, R)


@pytest.mark.parametrize(
    ("scope", "pass_", "covered"),
    [
        ("all", Pass(0, 5, 4), [0, 1, 2, 3, 4]),
        ("last_prompt", Pass(0, 5, 4), [3]),
        ("last_on", Pass(0, 5, 4), [3, 4]),
        ("last_prompt", Pass(4, 5, 4), []),
        ("last_on", Pass(4, 5, 4), [0, 1, 2, 3, 4]),
        ("last_on", Pass(0, 5, 9), []),
    ],
)
def test_place_acts_on_its_scope_only(stream, scope, pass_, covered) -> None:
    out = place("resid_pre", 2, scope, lambda s: affine(s, R, 50.0)).function(stream, pass_)
    left = [i for i in range(5) if i not in covered]
    assert torch.equal(out[:, left], stream[:, left])
    assert torch.allclose(out[:, covered] @ R, torch.tensor(50.0), atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "touched"),
    [(slice(0, 1), [0]), (slice(1, 3), [1, 2]), (slice(1, None), [1, 2]), (slice(None, 2), [0, 1]),
     (slice(None), [0, 1, 2]), (slice(-1, None), [2]), (slice(2, 2), [])],
)  # fmt: skip
def test_for_rows_touches_its_rows_only(stream, rows, touched) -> None:
    edit = place("resid_post", 0, "last_on", lambda s: add(s, R, 1.0))
    of_rows = for_rows(edit, rows)
    out = of_rows.function(stream, Pass(0, 5, 5))
    assert out.shape == stream.shape
    assert [i for i in range(3) if not torch.equal(out[i], stream[i])] == touched
    assert edit.keeps_prompt
    assert not of_rows.keeps_prompt  # rows may not leave a batch whose edits know their places


def test_blocks_of_rows_carry_different_edits_in_one_pass(model, rows) -> None:
    r = unit(3, model.d_model)
    edits = [place("resid_post", 1, "last_on", lambda s, t=t: affine(s, r, t)) for t in (25.0, -25.0)]
    both = [for_rows(edit, slice(2 * i, 2 * i + 2)) for i, edit in enumerate(edits)]
    with model.editing(both):
        together = model.generate(model.batch(rows[:4]), 8, min_new_tokens=8)
    for i, edit in enumerate(edits):
        mine = slice(2 * i, 2 * i + 2)
        with model.editing([edit]):
            assert model.generate(model.batch(rows[mine]), 8, min_new_tokens=8) == together[mine]


@pytest.mark.parametrize("cosine", [-1.0, -0.999, -0.98, -0.91, 0.5, 0.9, 0.91, 0.98, 0.9999, 1.0])
def test_a_write_along_nearly_parallel_directions_stays_bounded(cosine) -> None:
    a, b = np.linalg.qr(np.random.default_rng(2).standard_normal((12, 2)))[0].T
    R = torch.tensor(np.stack([a, cosine * a + np.sqrt(1 - cosine**2) * b]))
    target = torch.tensor([-7.0, 9.0 * np.sign(cosine)])  # in conflict
    written = set_projections(torch.zeros(12).double(), R, target, torch.tensor(solver(R.numpy())))
    assert written.norm() <= target.norm() / np.sqrt(1 - NEARLY_PARALLEL) + 1e-4
    if abs(cosine) <= NEARLY_PARALLEL:
        assert torch.allclose((R @ written).float(), target.float(), atol=1e-4)
    else:  # the control: to set them apart takes far more
        assert written.norm() < 1.01 * target.abs().max()
        if abs(cosine) < 1:
            assert np.linalg.norm(np.linalg.lstsq(R.numpy(), target.numpy())[0]) > 3 * written.norm()
