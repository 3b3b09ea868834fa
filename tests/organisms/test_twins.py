"""Strangers and questions are paired so that few of the pairs are linked."""

import numpy as np
import pytest

from extract.prompts.groups import linked_groups
from organisms.twins import spread
from probes.statistics.intervals import effective_groups


@pytest.mark.parametrize(("strangers", "questions", "wanted"), [(4, 6, 8), (5, 6, 8), (7, 6, 8), (3, 6, 12), (1, 6, 4)])
def test_as_many_different_pairs_as_wanted(strangers: int, questions: int, wanted: int) -> None:
    pairs = spread(strangers, questions, wanted)
    assert len(set(pairs)) == len(pairs) == wanted
    assert all(0 <= s < strangers and 0 <= q < questions for s, q in pairs)


def test_no_more_than_there_are() -> None:
    assert spread(2, 2, 9) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert spread(0, 6, 3) == []


def test_they_say_more_than_pairs_dealt_round() -> None:
    def worth(pairs: list[tuple[int, int]]) -> float:
        return effective_groups(linked_groups([f"s{s}" for s, _ in pairs], [f"q{q}" for _, q in pairs]))

    dealt = [((n + n // 6) % 4, n % 6) for n in range(8)]
    assert worth(spread(4, 6, 8)) == pytest.approx(64 / 24)
    assert worth(spread(4, 6, 8)) > 1.5 * worth(dealt)
    rng = np.random.default_rng(0)
    for _ in range(50):
        drawn = rng.choice(24, size=8, replace=False)
        assert worth(spread(4, 6, 8)) >= worth([(int(i) // 6, int(i) % 6) for i in drawn])
