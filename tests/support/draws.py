"""Simulations of a statistic: on few data sets in `make test`, on all of them where simulations run."""

import pytest


def draws(few: int, full: int, name: str = "n_draws") -> pytest.MarkDecorator:
    """Give a test the number of data sets to draw; what it asserts must hold for either.

    Where simulations run, the few draws are left out: they are the first of the full ones (tests/conftest.py).
    """
    each = [pytest.param(few, marks=pytest.mark.first_draws), pytest.param(full, marks=pytest.mark.simulation)]
    return pytest.mark.parametrize(name, each)
