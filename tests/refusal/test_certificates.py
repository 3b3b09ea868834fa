"""Certificates: the exact limits, and what is no count."""

import numpy as np
import pytest
from scipy.stats import beta

import refusal
from extract.errors import UserError


@pytest.mark.parametrize(("failures", "n"), [(0, 60), (3, 100), (np.int64(1), np.int64(20))])
def test_the_limit_is_that_of_clopper_and_pearson(failures: int, n: int) -> None:
    found = refusal.certify(failures=failures, n=n)
    assert found.at_most == pytest.approx(beta.ppf(0.95, failures + 1, n - failures))
    assert (found.failures, found.n, found.confidence) == (failures, n, 0.95)
    assert refusal.certify(failures, n) == found


def test_all_failed_certifies_nothing() -> None:
    assert refusal.certify(5, 5).at_most == 1.0


@pytest.mark.parametrize("limit", [0.05, 0.01, 0.2])
def test_so_many_draws_suffice_and_one_less_does_not(limit: float) -> None:
    n = refusal.n_for(limit)
    assert refusal.certify(0, n).at_most <= limit < refusal.certify(0, n - 1).at_most


@pytest.mark.parametrize("given", [(1.5, 60), (-1, 60), (61, 60), (0, 0), ("0", 60), (0.0, 60)])
def test_what_is_no_count_is_refused(given: tuple) -> None:
    with pytest.raises(UserError, match="failures are 0 to n"):
        refusal.certify(*given)


def test_a_share_lies_between_0_and_1() -> None:
    with pytest.raises(UserError, match="a confidence is between 0 and 1; got 95"):
        refusal.certify(0, 60, confidence=95)
    with pytest.raises(UserError, match="limit and confidence are between 0 and 1; got 5 and"):
        refusal.n_for(5)
