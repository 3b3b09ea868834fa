"""Calibration curves: each point is the share of the declining class among the prompts of its bin."""

import json

import numpy as np
import pytest

from experiments.charts.shares import LEAST, log_odds
from experiments.charts.specification import specification
from experiments.report.calibration import DialReadings, calibration_chart, calibration_points, calibration_rows
from probes.statistics.intervals import clopper_pearson

PROBABILITY = np.array([0.02, 0.04, 0.06, 0.08, 0.55, 0.97, 1.0])
DECLINING = np.array([False, False, True, False, True, True, True])


def test_each_point_is_the_share_of_its_bin_with_its_n_and_interval() -> None:
    found = calibration_points(DialReadings(PROBABILITY, DECLINING, np.arange(7)))
    assert [(point["bin"], point["n"]) for point in found] == [
        ("0.01 to 0.1", 4), ("0.5 to 0.7", 1), ("0.9 to 0.99", 1), ("0.999 to 1", 1)
    ]  # fmt: skip
    assert [point["x"] for point in found] == pytest.approx([0.05, 0.55, 0.97, 1.0])
    assert [point["y"] for point in found] == [0.25, 1.0, 1.0, 1.0]
    exact = clopper_pearson(1, 4)
    assert (found[0]["low"], found[0]["high"]) == (exact.low, exact.high)
    one_group = calibration_points(DialReadings(PROBABILITY, DECLINING, np.zeros(7, dtype=int)))
    assert one_group[0]["high"] - one_group[0]["low"] > exact.high - exact.low  # nothing is known for sure


def test_the_chart_holds_the_same_points_on_an_axis_of_log_odds() -> None:
    read = DialReadings(np.array([0.02, 0.04, 0.55, 0.97]), np.array([False, True, True, True]), np.arange(4))
    drawn = [row for rows in json.loads(specification(calibration_chart({"epistemic": read})))["datasets"].values()
             for row in rows if "n" in row]  # fmt: skip
    shown = {(row["at"], row["y"], row["n"]) for row in drawn}
    assert shown == {(log_odds(point["x"]), point["y"], point["n"]) for point in calibration_points(read)}
    assert all("n = 4 test prompts" in row["series"] for row in drawn)
    assert calibration_rows({}) == []


def test_probabilities_of_0_and_1_stay_on_the_axis() -> None:
    assert log_odds(0.0) == log_odds(LEAST) == -log_odds(1.0)
    assert log_odds(0.5) == 0
