"""A subspace holds an orthonormal basis with as many class means; of rank 1 it is its direction."""

from dataclasses import replace

import numpy as np
import pytest

from probes.direction import Direction, Locus, Subspace
from probes.means import unit

LOCUS = Locus("resid_post", 1, "post_last")
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((16, 3)))[0].T.astype(np.float32)
MEANS = np.arange(3.0)


def test_a_direction_and_back() -> None:
    later = {2: (4.0, -4.0)}
    direction = Direction("d", unit(np.arange(16.0)), LOCUS, 3.0, -2.0, {"seed": 1}, later)
    assert Subspace.of(direction).direction(0) == direction
    assert Subspace.of(direction).rank == 1


def test_several_directions_and_back_each_with_its_own_means() -> None:
    one = Subspace("s", BASIS, LOCUS, MEANS, -MEANS, later_means={2: (2 * MEANS, -2 * MEANS)})
    assert [d.name for d in one.directions] == ["s_1", "s_2", "s_3"]
    again = Subspace.of(*one.directions)
    assert [d.later_means for d in again.directions] == [d.later_means for d in one.directions]
    np.testing.assert_array_equal(again.basis, BASIS)
    elsewhere = replace(one.directions[1], locus=replace(LOCUS, layer=2))
    with pytest.raises(ValueError, match=r"must have one locus, got .*layer=1.* and .*layer=2"):
        Subspace.of(one.directions[0], elsewhere)
    found = Subspace("s", BASIS, LOCUS, MEANS, -MEANS, later_means={2: (2 * MEANS, -2 * MEANS)}).direction(2)
    assert (found.mean_positive, found.mean_negative, found.later_means) == (2.0, -2.0, {2: (4.0, -4.0)})
    np.testing.assert_array_equal(found.vector, BASIS[2])


def test_what_is_no_basis_is_refused() -> None:
    good = Subspace("s", BASIS, LOCUS, MEANS, -MEANS)
    oblique = BASIS.copy()
    oblique[1] = unit(BASIS[0] + BASIS[1])
    for basis in (oblique, 2 * BASIS, BASIS[0], BASIS[:0]):
        with pytest.raises(ValueError, match="subspace 's' must be orthonormal vectors, one a row; got shape"):
            replace(good, basis=basis)
    with pytest.raises(ValueError, match=r"of rank 3 needs as many class means; got shape \(2,\)"):
        replace(good, later_means={2: (MEANS[:2], MEANS[:2])})
