"""Calibration curves: each point is the share of the declining class among the prompts of its tenth."""

import numpy as np

from experiments.report.calibration_figure import calibration_diagram
from experiments.report.page.calibration import DialReadings, calibration_charts, calibration_points
from probes.statistics.intervals import clopper_pearson


def test_each_point_is_the_share_of_its_tenth_with_its_n_and_interval() -> None:
    probability = np.array([0.02, 0.04, 0.06, 0.08, 0.55, 0.97, 1.0])
    declining = np.array([False, False, True, False, True, True, True])
    found = calibration_points(DialReadings(probability, declining, np.arange(7)))
    assert [round(mark.x, 3) for mark in found] == [0.05, 0.55, 0.985]
    assert [mark.y for mark in found] == [0.25, 1.0, 1.0]
    exact = clopper_pearson(1, 4)
    assert found[0].y_ci == (exact.low, exact.high)
    assert "n = 4" in found[0].description
    whole = calibration_points(
        DialReadings(probability, declining, np.zeros(7, dtype=int))
    )  # one group: nothing is known for sure
    assert whole[0].y_ci[1] - whole[0].y_ci[0] > exact.high - exact.low


def test_the_picture_holds_the_same_points() -> None:
    read = DialReadings(np.array([0.02, 0.04, 0.55, 0.97]), np.array([False, True, True, True]), np.arange(4))
    axes = calibration_diagram({"epistemic": read}).axes[0]
    drawn = axes.containers[0].lines[0].get_xydata().tolist()
    assert drawn == [[mark.x, mark.y] for mark in calibration_points(read)]
    assert "n = 4" in axes.get_legend().get_texts()[1].get_text()


def test_a_chart_says_its_n() -> None:
    read = DialReadings(np.array([0.1, 0.9]), np.array([False, True]), np.arange(2))
    assert "n = 2" in calibration_charts({"normative": read})
    assert calibration_charts({}) == ""
