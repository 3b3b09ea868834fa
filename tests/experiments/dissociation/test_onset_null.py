"""P values of the permuted-label null."""

from functools import partial

import numpy as np
import pytest

from experiments.dissociation.measured_effects import NullEffects, numbers
from experiments.dissociation.onset_null import batched

of_normative = partial(NullEffects, ablated="normative", behaviour="normative")


def test_p_counts_the_direction_itself_and_ties() -> None:
    null = of_normative(observed=3.0, drawn=(1.0, 3.0, 5.0, 2.0), generated=())
    assert null.p == pytest.approx(3 / 5)


def test_what_is_not_finite_is_null_in_json() -> None:
    null = of_normative(observed=3.0, drawn=numbers([1.0, float("nan"), 5.0, float("nan")]), generated=())
    assert null.drawn == (1.0, None, 5.0, None)


@pytest.mark.parametrize(
    ("observed", "drawn", "p"),
    [(3.0, (1.0, 2.0, 4.0), 0.5), (None, (1.0, 2.0, 4.0), 1.0), (3.0, (1.0, None, 2.0), 0.5), (3.0, (1.0, 2.0), 1 / 3)],
)
def test_what_is_not_finite_never_makes_an_effect_rarer(
    observed: float | None, drawn: tuple[float | None, ...], p: float
) -> None:
    assert of_normative(observed=observed, drawn=drawn, generated=()).p == pytest.approx(p)


def test_too_few_distinct_permutations_give_no_p() -> None:
    few = of_normative(observed=3.0, drawn=(1.0, 2.0), generated=(), n_labellings=999)
    assert np.isnan(few.p)
    assert few.model_copy(update={"n_labellings": 1000}).p == pytest.approx(1 / 3)


@pytest.mark.parametrize(("total", "sizes"), [(199, [20] * 9 + [19]), (20, [20]), (7, [7]), (0, [])])
def test_draws_are_batched(total: int, sizes: list[int]) -> None:
    assert list(batched(total, 20)) == sizes
