"""Semantic entropy: its limits, its invariances, and the entropy threshold against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.uncertainty.semantic_entropy import discrete_entropy, entropy_threshold, weighted_entropy

clusters = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(clusters)
def test_it_lies_between_zero_and_the_logarithm_of_the_samples(given: list[int]) -> None:
    found = discrete_entropy(given)
    assert 0 <= found <= np.log(len(given)) + 1e-12
    assert (found == 0) == (len(set(given)) == 1)
    assert discrete_entropy([9 - c for c in given]) == pytest.approx(found)
    assert discrete_entropy(given * 3) == pytest.approx(found)


def test_all_samples_apart_have_the_most() -> None:
    assert discrete_entropy(range(10)) == pytest.approx(np.log(10))
    assert discrete_entropy([0, 0, 1, 1]) == pytest.approx(np.log(2))


@given(clusters, st.floats(-40, -1))
def test_sequences_of_one_likelihood_are_weighted_as_counted(given: list[int], nats: float) -> None:
    said = list(range(len(given)))
    assert weighted_entropy(given, [nats] * len(given), said) == pytest.approx(discrete_entropy(given), abs=1e-9)


def test_a_sequence_counts_once_however_often_it_is_drawn() -> None:
    p = np.log([0.6, 0.2])
    once = weighted_entropy([0, 1], p, ["a", "b"])
    assert once == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert weighted_entropy([0, 0, 0, 1], [p[0], p[0], p[0], p[1]], ["a", "a", "a", "b"]) == pytest.approx(once)


def test_two_wordings_of_one_meaning_add_up() -> None:
    p = np.log([0.3, 0.3, 0.2])
    assert weighted_entropy([0, 0, 1], p, ["a", "b", "c"]) == pytest.approx(weighted_entropy(
        [0, 1], np.log([0.6, 0.2]), ["a", "c"]))  # fmt: skip


@given(st.lists(st.floats(0, 2.3).map(lambda x: round(x, 2)), min_size=2, max_size=25))
def test_the_split_minimises_the_squared_error_within(given: list[float]) -> None:
    values = np.array(given)
    found = entropy_threshold(values)
    if len(set(given)) == 1:
        assert found is None
        return
    assert found is not None

    def within(threshold: float) -> float:
        parts = (values[values <= threshold], values[values > threshold])
        return sum(float(((part - part.mean()) ** 2).sum()) for part in parts if len(part))

    assert within(found) <= min(within(v) for v in set(given) - {max(given)}) + 1e-9
    assert min(given) < found < max(given)
