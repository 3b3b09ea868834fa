"""Covering arrays: a few cases of a large matrix in which every value, or every pair of values, occurs.

The few run in `make test`; the rest of the matrix is marked slow and runs in CI. Which are the few depends on nothing
but the matrix, so that they are the same in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def covering(cases: Sequence[Sequence[Hashable]], strength: int = 1) -> list[int]:
    """Choose cases, each one value a factor, in which every combination of so many factors' values there is occurs.

    Greedy: a case with most combinations that are not yet covered, of these one whose values were chosen least often.
    Returns their indices in order.
    """
    has = [set(combinations(enumerate(case), strength)) for case in cases]
    missing, chosen = set().union(*has), []
    times: Counter[tuple[int, Hashable]] = Counter()
    while missing:
        best = max(
            range(len(cases)), key=lambda i: (len(has[i] & missing), -sum(times[v] for v in enumerate(cases[i])))
        )
        chosen.append(best)
        times.update(enumerate(cases[best]))
        missing -= has[best]
    return sorted(chosen)


def rest_slow(params: Iterable[Any], keys: Sequence[Sequence[Hashable]], strength: int = 1) -> list[Any]:
    """Mark as slow what is not among the covering cases; `keys` says which values each parameter set stands for."""
    quick = set(covering(keys, strength))
    return [param if i in quick else _marked_slow(param) for i, param in enumerate(params)]


def _marked_slow(param: Any) -> Any:
    values, marks, name = param if hasattr(param, "marks") else (param, (), None)
    return pytest.param(*values, marks=[*marks, pytest.mark.slow], id=name)


def matrix(
    names: str, *factors: Iterable[Any], strength: int = 1, indirect: bool | list[str] = False
) -> pytest.MarkDecorator:
    """Parametrize over all combinations of factors, all but the covering ones slow.

    Args:
        names: of the test's arguments, one a factor, separated by commas.
        factors: the values of each; `pytest.param(value, id=...)` where a value has no short name of its own.
        strength: 1: every value is in a quick case; 2: every pair of values of two factors.
        indirect: as `pytest.mark.parametrize` takes it.
    """
    values = [list(factor) for factor in factors]
    keys = list(product(*(range(len(factor)) for factor in values)))
    params = [_joined([factor[i] for factor, i in zip(values, key, strict=True)]) for key in keys]
    return pytest.mark.parametrize(names, rest_slow(params, keys, strength), indirect=indirect)


def _joined(values: list[Any]) -> Any:
    """Join one value of each factor; as pytest would, were each factor parametrized by itself."""
    if not any(hasattr(value, "marks") for value in values):
        return pytest.param(*values)
    named = [value if hasattr(value, "marks") else pytest.param(value, id=str(value)) for value in values]
    marks = [mark for value in named for mark in value.marks]
    return pytest.param(*(value.values[0] for value in named), marks=marks, id="-".join(value.id for value in named))
