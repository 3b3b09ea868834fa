"""A control task is easy if types can be read, hard if not, and undefined if types do not recur."""

import numpy as np
import pytest

from probes.grid.selectivity import control_auroc


@pytest.mark.parametrize(("spread", "low", "high"), [(4.0, 0.95, 1.0), (0.0, 0.4, 0.6)])
def test_types_that_can_be_read_make_the_control_easy(spread: float, low: float, high: float) -> None:
    rng = np.random.default_rng(0)
    types = np.array([f"type{i % 8}" for i in range(400)])
    X = rng.standard_normal((400, 24)) + spread * rng.standard_normal((8, 24))[np.arange(400) % 8]
    half = np.arange(400) < 200
    assert low <= control_auroc(X[half], types[half], X[~half], types[~half], C=0.1) <= high


def test_no_control_without_four_types_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    X, own = rng.standard_normal((40, 4)), np.array([f"only{i}" for i in range(40)])
    assert np.isnan(control_auroc(X[:20], own[:20], X[20:], own[20:], C=1.0))
    three = np.array([f"t{i % 3}" for i in range(40)])
    assert np.isnan(control_auroc(X[:20], three[:20], X[20:], three[20:], C=1.0))
