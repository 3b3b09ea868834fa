"""The required sample size settles a question in about four of five simulated experiments."""

from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from experiments.dissociation.power import MOST, contrast_sample_size, null_power, null_sample_size, rate_sample_size
from experiments.dissociation.verdict import Effect, judge_dissociation
from experiments.dissociation.verdict_rules import EFFECT_KEYS
from experiments.run.behaviour import KINDS
from probes.statistics.intervals import Estimate, clopper_pearson
from probes.statistics.tango import tango_of_shares

N, E = KINDS
ABOVE, BELOW, WITHIN = (0.15, inf), (-inf, 0.15), (-0.15, 0.15)
TRIALS = 2000


def pairs(both: int, only_a: int, only_b: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    counts = [both, only_a, only_b, neither]
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


def settled(draws: np.ndarray, interval: Callable[..., Estimate], where: tuple[float, float]) -> float:
    """Return the share of simulated experiments, one a row, whose interval lies in the range."""
    tables, times = np.unique(draws, axis=0, return_counts=True)
    found = [interval(*map(float, table)) for table in tables]
    return float(times[[where[0] < i.low and i.high < where[1] for i in found]].sum() / len(draws))


@pytest.mark.parametrize(
    ("counts", "where"),
    [
        ((10, 9, 2, 9), ABOVE),
        ((0, 8, 0, 22), ABOVE),
        ((14, 2, 2, 22), BELOW),
        ((34, 2, 4, 0), WITHIN),
        ((10, 10, 10, 10), WITHIN),
        ((18, 1, 0, 1), WITHIN),
    ],
)
def test_the_number_for_a_contrast_settles_it_in_four_of_five(counts: tuple, where: tuple[float, float]) -> None:
    n = sum(counts)
    need = contrast_sample_size("", "", *pairs(*counts), n, where, 0.05)
    assert need.needed is not None
    assert need.more == need.needed - n
    drawn = np.random.default_rng(1).multinomial(need.needed, np.array(counts) / n, size=TRIALS)[:, 1:3]
    achieved = settled(drawn, lambda a, b: tango_of_shares(a / need.needed, b / need.needed, need.needed), where)
    assert 0.72 <= achieved <= 0.88


@pytest.mark.parametrize(("rate", "where"), [(0.05, BELOW), (0.1, BELOW), (0.3, ABOVE), (0.2, ABOVE)])
def test_the_number_for_a_rate_settles_it_in_four_of_five(rate: float, where: tuple[float, float]) -> None:
    need = rate_sample_size("", "", rate, 20, where, 0.05)
    assert need.needed is not None
    drawn = np.random.default_rng(2).binomial(need.needed, rate, size=(TRIALS, 1))
    assert 0.76 <= settled(drawn, lambda hits: clopper_pearson(hits, need.needed), where) <= 0.9


def test_half_the_number_settles_it_far_less_often() -> None:
    """The control: the number is not merely large enough for anything."""
    need = rate_sample_size("", "", 0.3, 20, ABOVE, 0.05)
    assert need.needed is not None
    half = need.needed // 2
    drawn = np.random.default_rng(3).binomial(half, 0.3, size=(TRIALS, 1))
    assert settled(drawn, lambda hits: clopper_pearson(hits, half), ABOVE) < 0.6


def test_where_no_number_settles_it_the_reason_is_given() -> None:
    none = np.array([], dtype=bool)
    near = rate_sample_size("", "", 0.1499, 40, BELOW, 0.05)
    assert str(near) == f"more than {MOST} independent decliners would be needed to settle it"
    assert str(contrast_sample_size("", "", none, none, 0, ABOVE, 0.05)) == "nothing was measured"
    for need in (
        contrast_sample_size("", "", *pairs(40, 17, 2, 41), 100, ABOVE, 0.05),
        rate_sample_size("", "", 0.15, 40, BELOW, 0.05),
    ):
        assert (need.needed, need.more) == (None, None)
        assert str(need) == "no number would settle it: the estimate lies on the margin"


def test_a_p_limited_by_too_few_draws_needs_more_draws() -> None:
    need = null_sample_size("", "", 0.1, 9, 0.05)  # none of nine beyond the effect
    assert (need.needed, need.more, need.unit) == (19, 10, "permuted-label directions")
    few = null_sample_size("", "", 3 / 41, 40, 0.05)  # two of forty
    assert few.needed is None or null_power(2 / 40, few.needed, 0.05) >= 0.8


def test_more_draws_do_not_help_an_effect_within_the_null() -> None:
    need = null_sample_size("", "", 0.2, 199, 0.05)
    assert (need.needed, str(need)) == (None, "no number of permuted-label directions would settle it")
    assert str(null_sample_size("", "", None, None, 0.05)) == "it was not compared with them"


# -- in a verdict ------------------------------------------------------------------------------------------------------


def judged(shares: dict[tuple[str, str], float], n: int = 40, p: float = 0.005, n_null: int | None = 199):
    effects = {key: Effect(np.arange(n) < round(shares[key] * n), p, n_null) for key in EFFECT_KEYS}
    return judge_dissociation(effects, {N: n, E: n}, {}, margin=0.15, alpha=0.05)


def test_only_missing_requirements_of_the_nearest_verdict_are_open() -> None:
    verdict = judged({(N, N): 0.9, (E, N): 0.0, (E, E): 0.3, (N, E): 0.05})
    assert verdict.verdict == "inconclusive"
    assert [(need.quantity, need.question) for need in verdict.power] == [
        ("own_minus_other_on_epistemic", "does it lie above 0.15?"),
        ("ablate_normative_on_epistemic", "does it lie below 0.15?"),
    ]
    assert str(verdict.power[0]) in verdict.reasons[0]


def test_an_effect_not_shown_to_be_none_says_so() -> None:
    verdict = judged({(N, N): 0.05, (E, N): 0.0, (E, E): 0.0, (N, E): 0.0})
    assert [need.quantity for need in verdict.power] == ["ablate_normative_on_normative"]
    assert "the share that ablating normative stops is 0.05" in verdict.reasons[0]


def test_too_few_null_draws_are_an_open_effect() -> None:
    verdict = judged({(N, N): 1.0, (E, N): 0.0, (E, E): 1.0, (N, E): 0.0}, p=0.1, n_null=9)
    assert [(need.quantity, need.more) for need in verdict.power] == [
        ("null_normative_on_normative", 10), ("null_epistemic_on_epistemic", 10),
    ]  # fmt: skip
    assert verdict.reasons[0].endswith("(p = 0.1); about 19 permuted-label directions would settle it (now 9) with a "
                                       "power of 80%")  # fmt: skip
