"""Planted coordinates: exact cosines, reading through the dual basis, setting one at a time."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from organisms.interchange import coordinates, draw_vectors, set_coordinates
from organisms.spec import OrganismSpec

Make = Callable[..., OrganismSpec]


def _vectors(organism: Make, cosine: float | None) -> Tensor:
    cosines = [] if cosine is None else [{"between": ["normative", "epistemic"], "value": cosine}]
    variables = [{"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}]
    spec = organism(planted={"layer": 0, "variables": variables, "cosines": cosines})
    return draw_vectors(spec.planted, spec.seed, spec.model.d_model)


@pytest.fixture(params=[None, 0.0, 0.6, -0.9, 0.99])
def vectors(request, organism) -> Tensor:
    return _vectors(organism, request.param)


@pytest.mark.parametrize("cosine", [None, 0.0, 0.6, -0.6, 0.99])
def test_vectors_are_unit_with_exactly_the_cosine_asked_for(organism, cosine) -> None:
    vectors = _vectors(organism, cosine).double()
    wanted = torch.tensor([[1.0, cosine or 0.0], [cosine or 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(vectors @ vectors.T, wanted, atol=2e-7, rtol=0)


def test_setting_one_coordinate_leaves_the_other_and_the_rest(vectors) -> None:
    torch.manual_seed(0)
    stream = torch.randn(5, 7, 32)
    before = coordinates(stream, vectors)
    for k in (0, 1):
        where = torch.zeros(5, 7, 2, dtype=torch.bool)
        where[..., k] = True
        changed = set_coordinates(stream, torch.full((5, 7, 2), 4.0), where, vectors)
        after = coordinates(changed, vectors)
        torch.testing.assert_close(after[..., k], torch.full((5, 7), 4.0), atol=2e-3, rtol=0)
        torch.testing.assert_close(after[..., 1 - k], before[..., 1 - k], atol=2e-3, rtol=0)
        complement = torch.eye(32) - torch.linalg.pinv(vectors) @ vectors
        torch.testing.assert_close(changed @ complement, stream @ complement, atol=1e-4, rtol=0)
        again = set_coordinates(changed, torch.full((5, 7, 2), 4.0), where, vectors)
        torch.testing.assert_close(again, changed, atol=2e-3, rtol=0)


def test_where_nothing_is_chosen_nothing_changes_bitwise(vectors) -> None:
    stream = torch.randn(3, 4, 32)
    kept = stream.clone()
    nowhere = torch.zeros(3, 4, 2, dtype=torch.bool)
    changed = set_coordinates(stream, torch.full((3, 4, 2), 9.0), nowhere, vectors)
    assert torch.equal(changed, stream)
    one = nowhere.clone()
    one[1, 2, 0] = True
    changed = set_coordinates(stream, torch.full((3, 4, 2), 9.0), one, vectors)
    assert (changed != stream).any(dim=-1).nonzero().tolist() == [[1, 2]]
    assert torch.equal(stream, kept)  # the input is never edited


def test_reading_oblique_coordinates_without_the_dual_basis_would_mix_them(organism) -> None:
    """The control: the plain projection of one planted vector sees the other."""
    vectors = _vectors(organism, 0.6)
    assert float(5.0 * vectors[1] @ vectors[0]) == pytest.approx(3.0, abs=1e-5)
    assert float(coordinates(5.0 * vectors[1], vectors)[0]) == pytest.approx(0.0, abs=1e-5)
