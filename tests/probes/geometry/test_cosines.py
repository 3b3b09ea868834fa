"""Cosines of planted directions are recovered; p-values are uniform for labels without information."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probes.contrast import Contrast
from probes.geometry.cosines import Cosine, compare_directions
from probes.geometry.fitted_direction import fit_with_null
from tests.support.draws import draws
from tests.support.planted_contrasts import Planted, rejects_too_often

pytestmark = pytest.mark.slow


def _compare(planted: Planted, seed: int, n: int = 39) -> Cosine:
    X, a, b = planted.draw(seed)
    return compare_directions(*(fit_with_null(X, c, n=n, seed=seed) for c in (a, b)))


def test_an_oblique_and_an_opposite_pair_are_recovered_and_beyond_the_null() -> None:
    found = _compare(Planted(cosine=0.6, n=400, d=64, offset=1e4), 0, n=199)
    assert found.fitted == pytest.approx(0.57, abs=0.06)
    assert found.noise_free.low < 0.6 < found.noise_free.high
    assert found.noise_free.high - found.noise_free.low < 0.2
    assert found.p == 1 / 200
    assert found.null_95 < 0.6
    assert found.reliability_a > 0.9
    found = _compare(Planted(cosine=-0.6, n=400, d=64), 0, n=199)
    assert found.fitted == pytest.approx(-0.57, abs=0.06)
    assert found.p <= 2 / 200  # as rare as 0.6: few permuted directions are closer


@draws(25, 100)
def test_real_but_orthogonal_directions_are_not_beyond_the_null(n_draws: int) -> None:
    p = np.array([_compare(Planted(cosine=0.0), seed).p for seed in range(n_draws)])
    assert not rejects_too_often(p)


def test_a_float32_stream_far_from_zero_gives_the_same_cosine() -> None:
    X, a, b = Planted(cosine=0.6).draw(0)
    exact, far = (
        compare_directions(*(fit_with_null(stream, c, n=19) for c in (a, b)))
        for stream in (X, (X + 1000).astype(np.float32))
    )
    assert far.fitted == pytest.approx(exact.fitted, abs=1e-4)


NOTHING = Planted(n=60, d=10, strength_a=0, strength_b=0)


@draws(30, 200)
@pytest.mark.parametrize(
    "planted",
    [
        NOTHING,
        replace(NOTHING, paired=False),
        replace(NOTHING, dominant=8.0),
        replace(NOTHING, dominant=8.0, paired=False),
        replace(NOTHING, strength_a=3.0, dominant=3.0),
    ],
    ids=["pairs", "rows", "pairs, dominant", "rows, dominant", "one contrast is real"],
)
def test_p_is_uniform_for_a_label_without_information(planted: Planted, n_draws: int) -> None:
    p = np.array([_compare(planted, seed).p for seed in range(n_draws)])
    assert not rejects_too_often(p)
    assert not rejects_too_often(p, 0.2)


def _along_the_dominant(seed: int, dominant: float = 2.0) -> Cosine:
    """One contrast really is the stream's largest component; the other's labels mean nothing."""
    X, a, b = replace(NOTHING, dominant=dominant, n=120, d=32).draw(seed)
    X[a.rows, 0] += 8 * a.y
    return compare_directions(*(fit_with_null(X, c, n=39, seed=seed) for c in (a, b)))


@draws(100, 150)
def test_a_real_direction_along_the_dominant_component_does_not_vouch_for_noise(n_draws: int) -> None:
    found = [_along_the_dominant(seed) for seed in range(n_draws)]
    assert not rejects_too_often(np.array([f.p for f in found]))
    assert rejects_too_often(np.array([f.p_both for f in found]))  # the control: why p is not p_both


def _sharing(seed: int, *, joint: bool, strength: float = 0.0) -> Cosine:
    """Two contrasts whose negatives are the same samples; without strength they have no information."""
    rng = np.random.default_rng([5, seed])
    X, part, third = rng.standard_normal((90, 20)), np.full(60, "train", dtype=object), np.arange(30)
    X[30:, 0] += strength
    if not joint:  # hide that they are the same samples
        X = np.vstack([X, X[:30]])
    second = third if joint else third + 90
    a, b = (
        Contrast(name, rows, np.arange(60) >= 30, rows, part)
        for name, rows in (("a", np.r_[third, 30:60]), ("b", np.r_[second, 60:90]))
    )
    return compare_directions(*(fit_with_null(X, c, n=39, seed=seed) for c in (a, b)))


@draws(40, 150)
def test_shared_negatives_make_a_cosine_that_the_joint_null_has_too(n_draws: int) -> None:
    found, hidden = ([_sharing(seed, joint=j) for seed in range(n_draws)] for j in (True, False))
    assert np.mean([f.fitted for f in found]) == pytest.approx(0.5, abs=0.05)
    assert {f.n_shared for f in found} == {30}
    assert not rejects_too_often(np.array([f.p for f in found]))
    assert rejects_too_often(np.array([f.p for f in hidden]))  # the control
    assert _sharing(0, joint=True, strength=6.0).p == 1 / 40  # a direction that both have is seen


@draws(40, 200)
@pytest.mark.parametrize("cosine", [0.0, 0.6])
@pytest.mark.parametrize(
    "planted",
    [
        Planted(n=120, d=64, strength_a=2.5, strength_b=2.5),
        Planted(n=120, d=64, strength_a=2.5, strength_b=2.5, paired=False),
        Planted(n=120, d=8, dominant=4.0),
        Planted(n=60, d=64, strength_a=1.0, strength_b=1.0),
    ],
    ids=["pairs", "rows", "dominant", "weak"],
)
def test_the_interval_covers_the_true_cosine(planted: Planted, cosine: float, n_draws: int) -> None:
    found = [_compare(replace(planted, cosine=cosine), seed, n=19).noise_free for seed in range(n_draws)]
    assert np.mean([f.low <= cosine <= f.high for f in found]) >= 0.95 - 2.6 * np.sqrt(0.05 * 0.95 / n_draws)


def test_noise_pulls_the_fitted_cosine_down_and_not_the_noise_free_one() -> None:
    found = [_compare(Planted(cosine=0.6, d=200, n=200, strength_a=2.0, strength_b=2.0), s, n=19) for s in range(60)]
    assert np.mean([f.fitted for f in found]) < 0.4
    assert np.mean([f.noise_free.estimate for f in found]) == pytest.approx(0.6, abs=0.05)
    f = found[0]
    assert f.fitted == pytest.approx(f.noise_free.estimate * np.sqrt(f.reliability_a * f.reliability_b), abs=0.02)
    assert np.mean([g.reliability_a for g in found]) == pytest.approx(4 / (4 + 200 * 2 / 100), abs=0.05)


def test_too_weak_a_direction_gives_no_interval() -> None:
    found = [_compare(NOTHING, seed, n=19).noise_free for seed in range(50)]
    assert np.mean([(f.low, f.high) == (-1.0, 1.0) for f in found]) > 0.9


def test_groups_of_alike_rows_count_once() -> None:
    """Copying every row eight times within its group changes neither estimate nor interval."""
    X, a, b = Planted(cosine=0.6, n=80, paired=False).draw(1)
    copies = np.repeat(np.arange(len(X)), 8)
    copied = [Contrast(c.name, np.flatnonzero(np.isin(copies, c.rows)), np.repeat(c.y, 8), np.repeat(c.groups, 8),
                       np.repeat(c.part, 8)) for c in (a, b)]  # fmt: skip
    once = compare_directions(*(fit_with_null(X, c, n=19) for c in (a, b)))
    many = X[copies]
    often = compare_directions(*(fit_with_null(many, c, n=19) for c in copied))
    assert often.noise_free.low == pytest.approx(once.noise_free.low)
    assert often.reliability_a == pytest.approx(once.reliability_a)


def test_mistakes_are_named() -> None:
    X, a, b = Planted().draw(0)
    with pytest.raises(ValueError, match="compare only directions of one locus"):
        compare_directions(fit_with_null(X, a), fit_with_null(X.copy(), b))
    with pytest.raises(ValueError, match="'normative' needs both classes in its train part; got 0 positive of 200"):
        fit_with_null(X, replace(a, y=np.zeros(200, dtype=bool)))
    with pytest.raises(ValueError, match="'epistemic' have NaN"):
        fit_with_null(np.where(np.arange(400)[:, None] == 300, np.nan, X), b)
    with pytest.raises(ValueError, match="at least 19 permutations"):
        fit_with_null(X, a, n=10)
    with pytest.raises(ValueError, match="rows outside the 100 samples"):
        fit_with_null(X[:100], a)
    with pytest.raises(ValueError, match="columns of equal length"):
        fit_with_null(X, replace(a, groups=a.groups[:5]))
    with pytest.raises(ValueError, match="zero or not finite"):
        fit_with_null(np.ones_like(X), a)
    fit_with_null(np.where(np.arange(400)[:, None] == 300, np.nan, X), a)  # not a row of this contrast
