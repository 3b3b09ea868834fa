"""Simulations of a statistic: on few data sets in `make test`, on all of them where simulations run."""

import pytest


def draws(few: int, full: int) -> pytest.MarkDecorator:
    """Give a test `n_draws`, the number of data sets to draw; what it asserts must hold for either."""
    return pytest.mark.parametrize("n_draws", [few, pytest.param(full, marks=pytest.mark.simulation)])
