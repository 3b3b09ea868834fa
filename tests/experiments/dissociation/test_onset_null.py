"""P values of the permuted-label null."""

import json

import numpy as np
import pytest

from experiments.dissociation.results import NullRecord

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("observed", "drawn", "p"),
    [
        (3.0, (1.0, 3.0, 5.0, 2.0), 3 / 5),  # the direction itself and ties count
        (3.0, (1.0, 2.0, 4.0), 0.5),
        (3.0, (1.0, 2.0), 1 / 3),
        (NAN, (1.0, 2.0, 4.0), 1.0),  # what is not finite never makes an effect rarer
        (INF, (1.0, 2.0, 4.0), 1.0),
        (3.0, (1.0, NAN, 2.0), 0.5),
        (3.0, (1.0, -INF, 2.0), 0.5),
    ],
)
def test_p_counts_the_direction_itself_and_never_what_is_not_finite_for_it(observed, drawn, p) -> None:
    assert NullRecord.of(observed, drawn).p == NullRecord.of(observed, drawn, n_labellings=1000).p == pytest.approx(p)
    few = NullRecord.of(observed, drawn, n_labellings=999)
    assert np.isnan(few.p)
    assert few.tested() == (None, len(drawn), 999)


def test_what_is_not_finite_is_null_in_json() -> None:
    null = NullRecord.of(3.0, (1.0, NAN, 5.123456, INF))
    assert null.drawn == (1.0, None, 5.1235, None)
    assert null.null_95th_percentile is None
    assert NullRecord.model_validate_json(json.dumps(null.to_dict(), allow_nan=False)) == null
