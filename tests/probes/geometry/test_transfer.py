"""A shared direction transfers, its opposite transfers with the opposite sign, and noise does not transfer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from probes.geometry.fitted_direction import fit_with_null
from probes.geometry.locus_geometry import Transfer, transfer
from probes.means import difference_in_means
from tests.support.draws import draws
from tests.support.planted_contrasts import Planted, rejects_too_often


def _transfer(planted: Planted, seed: int, n: int = 39) -> Transfer:
    X, a, b = planted.draw(seed)
    return transfer(*(fit_with_null(X, c, n=n, seed=seed) for c in (a, b)))


def test_a_shared_direction_transfers_with_its_sign() -> None:
    same, opposite = (_transfer(Planted(n=400, d=64, cosine=c, split=True), 0, n=199) for c in (0.8, -0.8))
    assert same.auroc.low > 0.7
    assert opposite.auroc.high < 0.3
    assert (same.p, opposite.p) == (1 / 200, 1 / 200)
    assert same.null_low < 0.5 < same.null_high < same.auroc.estimate


@draws(30, 150)
def test_an_orthogonal_direction_does_not_transfer(n_draws: int) -> None:
    p = np.array([_transfer(Planted(n=120, d=32, split=True), seed).p for seed in range(n_draws)])
    assert not rejects_too_often(p)


def test_the_auroc_is_sklearns_on_test_rows() -> None:
    X, a, b = Planted(cosine=0.5, split=True).draw(1)
    found = transfer(*(fit_with_null(X, c) for c in (a, b)))
    train, test = a.within("train"), b.within("test")
    direction = difference_in_means(X[a.rows[train]], a.y[train])
    assert found.auroc.estimate == pytest.approx(roc_auc_score(b.y[test], X[b.rows[test]] @ direction))
    assert (found.fitted_on, found.tested_on) == ("normative", "epistemic")


NOTHING = Planted(n=80, d=10, strength_a=0, strength_b=0, split=True)


@draws(25, 100)
@pytest.mark.parametrize("strengths", [(0.0, 0.0), (3.0, 0.0), (0.0, 3.0)])
@pytest.mark.parametrize("paired", [True, False])
def test_p_is_uniform_for_a_label_without_information(strengths, paired, n_draws) -> None:
    planted = replace(NOTHING, strength_a=strengths[0], strength_b=strengths[1], dominant=6.0, paired=paired)
    p = np.array([_transfer(planted, seed).p for seed in range(n_draws)])
    assert not rejects_too_often(p)


def test_each_null_alone_vouches_for_noise_that_the_other_sees() -> None:
    """The control: why p is the larger of two."""
    one = [_transfer(replace(NOTHING, strength_a=30.0, dominant=30.0, paired=False), seed) for seed in range(100)]
    other = [_transfer(replace(NOTHING, strength_b=8.0, cosine=1.0), seed) for seed in range(30)]
    assert rejects_too_often(np.array([f.p_fitted for f in one]))
    assert rejects_too_often(np.array([f.p_tested for f in other]))


def test_a_group_trained_on_is_not_tested_on() -> None:
    X, a, b = Planted(split=True).draw(0)
    mixed = replace(b, groups=np.where(b.part == "test", a.groups[a.part == "train"][0], b.groups))
    with pytest.raises(ValueError, match="1 groups are in the train part of 'normative' and the test part of 'epi"):
        transfer(*(fit_with_null(X, c) for c in (a, mixed)))
    with pytest.raises(ValueError, match="'epistemic' needs both classes in its test part; got 0 positive of 0"):
        transfer(*(fit_with_null(X, replace(c, part=np.where(c.part == "test", "", c.part))) for c in (a, b)))
