"""Difference in means: direction, midpoint threshold, and scores in residual-stream units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from probes.estimators import DifferenceInMeans
from probes.means import difference_in_means


def test_it_is_the_unit_difference_cut_half_way(plant: Any) -> None:
    X, y = plant(12, gap=3.0, offset=5.0).draw(120, seed=1, share=0.25)
    probe = DifferenceInMeans().fit(X, y)
    theta = difference_in_means(X, y)
    np.testing.assert_allclose(probe.theta_, theta, atol=1e-12)
    np.testing.assert_allclose(probe.coef_[0], theta / np.linalg.norm(theta), atol=1e-12)
    score = probe.decision_function(X)
    assert score[y].mean() == pytest.approx(-score[~y].mean(), abs=1e-9)
    assert score[y].mean() - score[~y].mean() == pytest.approx(np.linalg.norm(theta), abs=1e-9)
    assert abs(score.mean()) > 0.1  # the control: the mean of all samples is elsewhere where classes are unequal
