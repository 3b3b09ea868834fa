"""The table of a sweep: its columns against results.json, its types, and the page in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet
import pytest

from experiments.run.config import RunConfig, load_config
from experiments.sweep.grid import Cell, CellState, Ending, SweepConfig
from experiments.sweep.table import row_of, verdicts_shown, write_sweep_page, write_table
from extract.shipped import ROOT
from tests.support.browser import AXE, faults, needs_browser, opened, started

FINISHED = ROOT / "tests" / "fixtures" / "small_run"
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config(FINISHED / "config.yaml")


@pytest.fixture(scope="module")
def states(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> list[CellState]:
    """Two finished cells, one with another rate of over-refusal and no dials; one that failed; one that is left."""
    other = tmp_path_factory.mktemp("sweep") / "b_seed-10"
    other.mkdir()
    record = json.loads((FINISHED / "results.json").read_text())
    record["rates"]["before"]["over_refusal"]["estimate"] = 0.99
    (other / "results.json").write_text(json.dumps(record | {"dials": {}}))

    def cell(name: str, model: str, seed: int | str) -> Cell:
        return Cell(name, {"model": model, "seed": seed}, "", (), config)

    return [
        CellState(cell("a_seed-9", "a", 9), FINISHED, "done", 1.5),
        CellState(cell("b_seed-10", "b", 10), other, "done", 2.0),
        CellState(
            cell("c", HOSTILE, 1), other, "failed", None, Ending(cell="c", exit_code=2, line=HOSTILE, node="here")
        ),
        CellState(cell("d", "d", 1), other, "left"),
    ]


@pytest.fixture(scope="module")
def written(states: list[CellState], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rows = tmp_path_factory.mktemp("written"), [row_of(state) for state in states]
    write_table(rows, folder)
    sweep = SweepConfig(name="some", models=("a", "b"), keys={"seed": (9, 10)})
    write_sweep_page(sweep, states, rows, folder / "table.html")
    return folder


def test_a_row_holds_what_the_results_hold(written: Path) -> None:
    record = json.loads((FINISHED / "results.json").read_text())
    table = pd.read_parquet(written / "table.parquet")
    first = table.iloc[0]
    assert (first["verdict"], first["basis"]) == (record["dissociation"]["verdict"], "wording")
    assert verdicts_shown({"verdict": "no_effect", "basis": "reason", "trigger_verdict": "mixed"}) == [
        "no effect, by reason", "mixed",
    ]  # fmt: skip
    assert first["trigger_share"] == record["triggers"]["trigger_share"]
    assert [first["trigger_share_low"], first["trigger_share_high"]] == record["triggers"]["trigger_share_ci"]
    for when in ("before", "after"):
        for rate in ("missed_harm", "over_refusal", "overconfidence", "uncertain_refused"):
            found, name = record["rates"][when], f"{rate}_{when}"
            assert [first[f"{name}{end}"] for end in ("", "_low", "_high", "_n")] == [
                found[rate][key] for key in ("estimate", "low", "high", "n")
            ]
    assert first["planted_normative_cosine"] == record["planted"]["normative_cosine"]
    assert first["minutes"] == 1.5
    assert first["report"] == "a_seed-9/report.html"


def test_what_is_not_known_is_missing_and_never_zero(written: Path) -> None:
    table = pd.read_parquet(written / "table.parquet").set_index("cell")
    assert list(table["status"]) == ["done", "done", "failed", "left"]
    assert pd.isna(table.loc["b_seed-10", "over_refusal_after"])
    assert not pd.isna(table.loc["b_seed-10", "over_refusal_before"])
    assert table.loc[["c", "d"], "over_refusal_before"].isna().all()
    assert table.loc["c", "error"] == HOSTILE
    assert len(pd.read_csv(written / "table.csv")) == 4


def test_columns_have_types(written: Path) -> None:
    kinds = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(written / "table.parquet")}
    assert [kinds[name] for name in ("seed", "model", "over_refusal_before", "over_refusal_before_n", "minutes")] == [
        "int64", "string", "double", "int64", "double",
    ]  # fmt: skip


def test_an_axis_of_unlike_values_is_text(states: list[CellState], config: RunConfig, tmp_path: Path) -> None:
    rows = [row_of(CellState(Cell(str(rank), {"dissociate.rank": rank}, "", (), config), tmp_path, "left"))
            for rank in (1, "auto")]  # fmt: skip
    write_table(rows, tmp_path)
    assert list(pd.read_parquet(tmp_path / "table.parquet")["dissociate.rank"]) == ["1", "auto"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.mark.slow
@needs_browser
def test_the_page_sorts_filters_and_draws(browser: Any, written: Path) -> None:
    with opened(browser, written / "table.html", bypass_csp=bool(AXE)) as page:

        def shown() -> list[str]:
            return [row.inner_text() for row in page.locator("table.cells tbody tr:visible th").all()]

        assert "2 of 4 cells are done, 1 failed, 1 is left" in page.inner_text("main")
        assert shown() == ["a_seed-9", "b_seed-10", "c", "d"]
        page.get_by_role("button", name="seed", exact=True).click()
        assert shown() == ["c", "d", "a_seed-9", "b_seed-10"]  # as numbers
        page.get_by_role("button", name="over_refusal").click()
        page.get_by_role("button", name="over_refusal").click()
        assert shown() == ["b_seed-10", "a_seed-9", "c", "d"]  # the unknown ones last
        assert page.locator("th[aria-sort=descending]").inner_text() == "over_refusal"
        page.locator(".search").fill("FAILED c")
        assert shown() == ["c"]
        assert page.locator(".count").inner_text() == "1 of 4 cells"
        page.locator(".search").fill("")
        assert page.locator("table.cells tbody th a").nth(1).get_attribute("href") == "a_seed-9/report.html"
        page.wait_for_selector("figure[data-chart=rates] svg")
        if AXE:
            assert faults(page) == []
