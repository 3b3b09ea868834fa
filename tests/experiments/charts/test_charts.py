"""Charts: each is a valid specification, is written as PNG and SVG, and leaves out what its data cannot show."""

import json
from pathlib import Path

import pytest

from experiments.charts.grids import MOST_WRITTEN, by_layer, heat_map
from experiments.charts.points import LIVE, SHAPES, rates_before_after, scatter, shape_of, tradeoff
from experiments.charts.specification import Chart, Row, save, specification
from scoring.actions import ACTIONS

pytestmark = pytest.mark.slow


def cells(n_columns: int) -> list[Row]:
    known = {"row": "post_last", "estimate": 0.5, "low": 0.4, "high": 0.6, "n": 9}
    return [{"column": str(i), **known} for i in range(n_columns)]


def grid(n_columns: int) -> Chart:
    return heat_map(cells(n_columns), title="t", columns="layer", lines="position", unit="AUROC", domain=(0.0, 1.0))


def marks(chart: Chart) -> list[str]:
    return [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]  # validates against Vega-Lite's schema


def test_numbers_are_written_where_columns_are_few_and_a_frame_where_a_cell_is_chosen() -> None:
    assert marks(grid(MOST_WRITTEN)) == ["rect", "text", "text"]
    assert marks(grid(MOST_WRITTEN + 1)) == ["rect"]
    chosen = [cells(2)[0], {**cells(2)[1], "chosen": True}]
    framed = heat_map(chosen, title="t", columns="c", lines="l", unit="u", domain=(0, 1))
    assert marks(framed)[-1] == "rect"
    [rows] = json.loads(specification(grid(2)))["datasets"].values()
    assert {row["interval"] for row in rows} == {"0.40\u20130.60"}


def test_no_interval_is_drawn_where_none_is_known() -> None:
    point = {"layer": 1, "series": "cosine", "estimate": 0.1, "low": None, "high": None, "n": None}
    assert marks(by_layer([point], y_title="cosine", reference=None)) == ["line", "point"]
    assert marks(by_layer([{**point, "low": 0.0, "high": 0.2}], y_title="share"))[0] == "rule"
    dots: list[Row] = [{"kind": "two dials", "name": "a", "x": 0.1, "y": 0.2}]
    assert marks(tradeoff(dots, x_title="x", y_title="y")) == ["point"]


def test_the_page_s_script_has_a_place_for_its_point_and_a_file_has_none() -> None:
    dots: list[Row] = [{"kind": "two dials", "name": "a", "x": 0.1, "y": 0.2}]
    assert f'"name":"{LIVE}"' in specification(tradeoff(dots, x_title="x", y_title="y", live=True))
    drawn = specification(tradeoff(dots, x_title="x", y_title="y"))
    assert LIVE not in drawn
    assert "these thresholds" not in drawn


def test_every_action_has_a_shape() -> None:
    assert {shape_of(action) for action in [*ACTIONS, None]} <= set(SHAPES)
    chart = scatter(None, labels=["benign", "harmful"], x_title="x", y_title="y").to_dict()
    assert [layer["data"]["name"] for layer in chart["layer"]] == ["prompts", "stepped"]


def test_a_limit_is_drawn_for_the_rates_that_have_one_and_an_unjudged_rate_not_at_all() -> None:
    rows: list[Row] = [
        {"rate": "a", "when": "before", "estimate": 0.2, "low": 0.1, "high": 0.3, "n": 5, "limit": 0.05},
        {"rate": "b", "when": "before", "estimate": None, "low": None, "high": None, "n": 0, "limit": 0.05},
    ]
    spec = json.loads(specification(rates_before_after(rows)))
    assert sorted((row["rate"], row["estimate"]) for of in spec["datasets"].values() for row in of) == [
        ("a", 0.05), ("a", 0.2)
    ]  # fmt: skip


@pytest.mark.parametrize("n", [1, 6000])  # altair takes 5,000 rows of a DataFrame
def test_a_chart_is_written_as_png_and_svg(tmp_path: Path, n: int) -> None:
    rows: list[Row] = [{"i": i, "x": i, "y": -i, "label": "benign", "action": "answer"} for i in range(n)]
    save(scatter(rows, labels=["benign"], x_title="x", y_title="y"), tmp_path / "figures" / "a.png")
    assert (tmp_path / "figures" / "a.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "figures" / "a.svg").read_text()
    assert svg.startswith("<svg")
    assert 'fill="white"' in svg  # files are on white; the page's charts let the page through
