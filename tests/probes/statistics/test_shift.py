"""The detector of a shift: uniform p-values, the promised run length, and how soon a shift is seen."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, kstest

from probes.statistics import shift
from probes.statistics.shift import BETS, RUN_LENGTH, ShiftDetector, bets_on


@pytest.mark.parametrize("bet", range(len(BETS)))
def test_each_bet_has_mean_one_under_uniform_p(bet: int) -> None:
    parts = [
        quad(lambda p: bets_on(p)[bet], *limits, limit=200)[0] for limits in ((0, 0.001), (0.001, 0.999), (0.999, 1))
    ]
    assert sum(parts) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(
    "draw", [lambda rng: rng.normal(), lambda rng: float(rng.integers(3))], ids=["numbers", "ties"]
)
def test_p_values_are_uniform_and_independent_whatever_the_values(
    draw: Callable[[np.random.Generator], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    monkeypatch.setattr(shift, "bets_on", lambda p: seen.append(p) or np.ones(len(BETS)))
    for seed in range(150):
        rng = np.random.default_rng(seed)
        detector = ShiftDetector([draw(rng) for _ in range(8)], run_length=np.inf, seed=seed)
        for _ in range(20):
            detector.see(draw(rng))
    assert kstest(seen, "uniform").pvalue > 0.01
    together = np.array(seen).reshape(150, 20)
    assert abs(np.corrcoef(together[:, :-1].ravel(), together[:, 1:].ravel())[0, 1]) < 0.05


def test_the_mean_run_to_a_false_alarm_is_at_least_the_stated_one() -> None:
    runs = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        detector = ShiftDetector(rng.normal(size=20), run_length=50, seed=seed)
        while not detector.see(rng.normal()):
            if detector.n == 2000:
                break
        runs.append(detector.n)
    assert np.mean(runs) > 50
    assert np.mean(np.array(runs) < 50) < 0.5  # and it does alarm at last
    assert np.median(runs) < 500


@pytest.mark.slow
def test_alarms_of_300_null_streams_stay_within_the_binomial_limit() -> None:
    alarmed, requests = 0, 2000
    for seed in range(300):
        rng = np.random.default_rng(seed)
        detector = ShiftDetector(rng.normal(size=60), seed=seed)
        alarmed += any([detector.see(value) for value in rng.normal(size=requests)])
    assert alarmed <= binom.ppf(0.99, 300, requests / RUN_LENGTH)


@pytest.mark.parametrize("before", [0, 500])
@pytest.mark.parametrize(
    "changed",
    [lambda x: x + 1, lambda x: x - 1, lambda x: 2.5 * x, lambda x: 0.3 * x],
    ids=["higher", "lower", "wider", "narrower"],
)
def test_a_shift_is_seen_within_200_values(before: int, changed: Callable[[float], float]) -> None:
    delays = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        detector = ShiftDetector(rng.normal(size=150), seed=seed)
        for value in rng.normal(size=before):
            detector.see(value)
        start = detector.n
        while detector.n < start + 200 and not detector.see(changed(rng.normal())):
            pass
        delays.append(detector.n - start)
    assert max(delays) < 200


def test_after_an_alarm_the_detector_begins_again() -> None:
    detector = ShiftDetector(np.linspace(0, 1, 100))
    alarms = [detector.see(9.0 + k) for k in range(40)]
    first = alarms.index(True)
    assert first > 1
    assert sum(alarms[first + 1 : 2 * first]) == 0
    assert detector.evidence < RUN_LENGTH
    assert detector.n == 40


def test_so_many_values_are_kept_and_then_it_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shift, "MOST", 50)
    rng = np.random.default_rng(0)
    detector = ShiftDetector(rng.normal(size=30))
    assert not any(detector.see(value) for value in rng.normal(size=180))
    assert len(detector._seen) < 80
    assert any(detector.see(value) for value in rng.normal(3, size=40))


def test_a_value_that_is_no_number_is_refused_and_not_kept() -> None:
    detector = ShiftDetector([0.0])
    with pytest.raises(ValueError, match="a number"):
        detector.see(float("nan"))
    assert detector.n == 0
