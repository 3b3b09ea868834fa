"""Partial eta squared: textbook values, planted effects, and no effect."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from probes.statistics.factorial import CELLS, CONTRASTS, partial_eta


def cells(first: float, second: float, interaction: float) -> np.ndarray:
    """Groups with their own level, effects of the given sizes, and noise of each cell; two measurements."""
    rng = np.random.default_rng(0)
    a, b = (np.array(CELLS).T - 0.5).tolist()
    effects = first * np.array(a) + second * np.array(b) + 2 * interaction * np.array(a) * np.array(b)
    level = 10 * rng.standard_normal((60, 1, 1))
    return np.asarray(level + effects[None, :, None] + rng.standard_normal((60, 4, 2)))


@pytest.mark.parametrize("effect", CONTRASTS)
def test_it_is_the_f_of_repeated_measures(effect: str) -> None:
    found = partial_eta(measured := cells(0.4, 0.2, 0.1), CONTRASTS[effect], seed=0)
    t = ttest_1samp(np.einsum("gcm,c->gm", measured, CONTRASTS[effect]), 0).statistic
    assert found.estimate == pytest.approx(t**2 / (t**2 + len(measured) - 1))
    assert ((found.low <= found.estimate) & (found.estimate <= found.high)).all()


def test_each_effect_is_seen_where_it_is_and_nowhere_else() -> None:
    only_first = cells(3, 0, 0)
    by_effect = {name: partial_eta(only_first, contrast, seed=0) for name, contrast in CONTRASTS.items()}
    assert (by_effect["first"].low > 0.5).all()
    assert (by_effect["first"].p <= 0.001).all()
    assert by_effect["first"].mean == pytest.approx(3, abs=0.5)
    for name in ("second", "interaction"):
        assert (by_effect[name].high < 0.3).all()
        assert (by_effect[name].p > 0.01).all()


def test_units_and_levels_do_not_matter() -> None:
    x = cells(1, 0, 0)
    one, other = (partial_eta(measured, CONTRASTS["first"], seed=0) for measured in (x, 7 - 1000 * x))
    assert other.estimate == pytest.approx(one.estimate)
    assert other.low == pytest.approx(one.low)
    assert other.mean == pytest.approx(-1000 * one.mean)


def test_groups_that_agree_exactly_and_groups_without_any_effect() -> None:
    exact = np.array([1.0, 1.0, 0.0, 0.0])[None, :, None] + np.arange(12.0)[:, None, None]
    full = partial_eta(exact, CONTRASTS["first"], seed=0)
    assert full.estimate == pytest.approx(1)
    assert full.low > 0.99
    nothing = partial_eta(exact, CONTRASTS["second"], seed=0)
    assert nothing.estimate == 0
    assert nothing.p == 1
    assert nothing.low == 0


def test_a_true_null_is_rejected_at_the_nominal_rate() -> None:
    noise = np.random.default_rng(1).standard_normal((30, 4, 800))
    found = partial_eta(noise, CONTRASTS["interaction"], seed=0)
    assert 0.03 <= (found.p <= 0.05).mean() <= 0.075
    assert (found.low == 0).mean() > 0.93


def test_the_interval_holds_what_is_planted() -> None:
    rng, d = np.random.default_rng(2), 1.0
    contrast = d + rng.standard_normal((40, 600))
    found = partial_eta(np.stack([contrast, contrast, 0 * contrast, 0 * contrast], axis=1), CONTRASTS["first"], seed=0)
    truth = d**2 / (d**2 + 1)
    assert 0.92 <= ((found.low <= truth) & (truth <= found.high)).mean() <= 0.985


def test_two_groups_are_too_few() -> None:
    with pytest.raises(ValueError, match="needs at least three groups with all four cells; got 2"):
        partial_eta(np.zeros((2, 4, 1)), CONTRASTS["first"], seed=0)
