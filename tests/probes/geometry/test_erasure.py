"""Erasing a contrast removes it, keeps an independent one, and removes most of one with the same direction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from concept_erasure import LeaceFitter

from probes.geometry.fitted_direction import fit_with_null
from probes.geometry.locus_geometry import Erasure, cross_erasure
from probes.means import difference_in_means
from tests.support.draws import draws
from tests.support.planted_contrasts import Planted, rejects_too_often


def _erasures(planted: Planted, seed: int, n: int = 39) -> tuple[Erasure, Erasure]:
    X, a, b = planted.draw(seed)
    one, two = (fit_with_null(X, c, n=n, seed=seed) for c in (a, b))
    return cross_erasure(one, one), cross_erasure(one, two)


@pytest.mark.parametrize("planted", [Planted(n=300), Planted(n=60, d=200)], ids=["n > d", "n < d"])
def test_the_eraser_is_the_packages(planted: Planted) -> None:
    X, a, _ = planted.draw(0)
    X[:, 0] *= 6
    ours = fit_with_null(X, a, n=19).erasers
    rows = torch.tensor(X[a.rows])
    fitter = LeaceFitter(X.shape[1], 1, dtype=torch.float64, constrain_cov_trace=False)
    theirs = fitter.update(rows, torch.tensor(a.y.astype(float))).eraser(rows).numpy()
    np.testing.assert_allclose(ours(X[a.rows]), theirs, atol=1e-8)


def test_erasing_twice_is_erasing_once_and_class_means_meet() -> None:
    X, a, _ = Planted(n=100, offset=100.0).draw(0)
    eraser = fit_with_null(X, a, n=19).erasers
    once = eraser(X[a.rows])
    np.testing.assert_allclose(eraser(once), once, atol=1e-9)
    np.testing.assert_allclose(difference_in_means(once, a.y), 0, atol=1e-9)


def test_own_erasure_goes_to_chance_an_independent_contrast_stays_and_a_shared_direction_goes() -> None:
    own, other = _erasures(Planted(n=600, split=True), 0, n=199)
    assert own.before.low > 0.8
    assert own.after.estimate == 0.5
    assert own.fresh_before.low > 0.8
    assert own.fresh_after.low < 0.5
    assert own.p == 1 / 200
    assert own.null_after > 0.9
    assert other.after.estimate == pytest.approx(other.before.estimate, abs=0.02)
    assert other.fresh_after.low > 0.8
    _, other = _erasures(Planted(n=600, split=True, cosine=1.0), 0, n=199)
    assert other.before.low > 0.8
    assert other.after.estimate < 0.7
    assert other.fresh_after.estimate < 0.7
    assert other.p == 1 / 200


def test_with_few_samples_own_erasure_leaves_something_for_fresh_rows() -> None:
    """What `fresh_after` is for: on its training rows the eraser looks perfect."""
    own, _ = _erasures(Planted(n=160, d=600, strength_a=6.0, split=True), 0)
    assert own.after.estimate == 0.5
    assert own.fresh_after.estimate > 0.6


@draws(30, 100)
@pytest.mark.parametrize("dominant", [1.0, 6.0])
@pytest.mark.parametrize("paired", [True, False])
def test_p_is_uniform_if_the_erased_label_has_no_information(dominant: float, paired: bool, n_draws: int) -> None:
    planted = Planted(n=100, d=10, strength_a=0.0, strength_b=1.5, dominant=dominant, paired=paired, split=True)
    p = []
    for seed in range(n_draws):
        X, a, b = planted.draw(seed)
        p.append(cross_erasure(*(fit_with_null(X, c, n=39, seed=seed) for c in (a, b))).p)
    assert not rejects_too_often(np.array(p))


def test_without_validation_rows_there_is_no_fresh_probe() -> None:
    X, a, b = Planted(split=True).draw(0)
    one, two = (fit_with_null(X, replace(c, part=np.where(c.part == "validation", "", c.part))) for c in (a, b))
    assert np.isnan(cross_erasure(one, two).fresh_after.estimate)
