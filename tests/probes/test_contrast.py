"""A contrast accepts lists and arrays, and reports invalid input before anything is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from probes.contrast import Contrast
from probes.grid.probe_grid import cross_validation

N = 12
GIVEN: dict[str, Any] = {"rows": np.arange(N), "y": np.arange(N) % 2 == 1, "groups": np.arange(N) // 2,
                         "part": np.full(N, "train")}  # fmt: skip


def _contrast(**changed: Any) -> Contrast:
    return Contrast("normative", **(GIVEN | changed))


@pytest.mark.parametrize("kind", [int, float, np.int8, object, list])
def test_labels_of_0_and_1_are_booleans(kind: Any) -> None:
    y = GIVEN["y"].tolist() if kind is list else GIVEN["y"].astype(kind)
    assert _contrast(y=y).y.dtype == bool
    np.testing.assert_array_equal(_contrast(y=y).y, GIVEN["y"])


def test_lists_make_the_folds_that_arrays_do() -> None:
    names = [f"pair {group}" for group in GIVEN["groups"]]
    lists = _contrast(**{name: column.tolist() for name, column in GIVEN.items()} | {"groups": names})
    of_lists, of_arrays = (cross_validation(c, 2, 2) for c in (lists, _contrast(groups=np.array(names))))
    for one, other in zip(of_lists, of_arrays, strict=True):
        np.testing.assert_array_equal(one.test, other.test)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": GIVEN["y"][:9]}, r"columns of equal length; got rows \(12,\), y \(9,\)"),
        ({"part": GIVEN["part"][:9]}, r"part \(9,\)"),
        ({"y": GIVEN["y"][:, None]}, r"one-dimensional .* y \(12, 1\)"),
        ({"groups": None}, r"groups \(\)"),
        ({"y": np.where(GIVEN["y"], 1, -1)}, "must be boolean, or 0 and 1; got -1"),
        ({"y": np.where(GIVEN["y"], "harmful", "benign")}, "must be boolean, or 0 and 1; got 'benign'"),
        ({"rows": np.ones(N, dtype=bool)}, "integer indices of samples; got bool .np.flatnonzero converts a mask"),
        ({"rows": np.arange(N) - 2}, "rows must be 0 or greater; got -2"),
        ({"rows": np.maximum(np.arange(N), 2)}, "each row must occur once, .* row 2 occurs 3 times"),
        ({"groups": np.where(np.arange(N) < 2, None, "pair")}, "2 samples have no group, the first is row 0"),
        ({"groups": np.where(np.arange(N) > 9, np.nan, 1.0)}, "2 samples have no group, the first is row 10"),
        ({"groups": np.array([1] * 6 + ["pair"] * 6, dtype=object)}, "must be all text or all numbers; got 1 and"),
    ],
)
def test_invalid_input_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"contrast 'normative'.*{message}"):
        _contrast(**changed)
