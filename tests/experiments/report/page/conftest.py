"""The report of the small run, written once, opened in a real browser: one a module, for two at once cannot be."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.dials.counterfactuals import Counterfactuals, read_table
from experiments.report import stage as report_stage
from experiments.report.stage import write_report
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from tests.support.browser import opened, started
from tests.support.report_page import KINDS, place


@pytest.fixture(scope="session")
def run(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, for the command line holds the run's place and pages are written beside it."""
    copy = tmp_path_factory.mktemp("page") / "small_run"
    shutil.copytree(small_run, copy)
    return copy


@pytest.fixture(scope="session")
def context(run: Path) -> RunInputs:
    return RunInputs(load_config(run / "config.yaml"), run)


@pytest.fixture(scope="session")
def table(run: Path) -> Counterfactuals:
    return read_table(run / "table.jsonl")


@pytest.fixture(scope="session")
def report(context: RunInputs) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_stage, "draw", lambda *_: {})
        write_report([context], context.file("report.html"))
    return context.file("report.html")


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no PNG files, which take longer than all else."""
    monkeypatch.setattr(report_stage, "draw", lambda *_: {})


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def tab(browser: Any, report: Path) -> Iterator[Any]:
    with opened(browser, report) as found:
        yield found


@pytest.fixture
def page(tab: Any) -> Any:
    """The report as it opens but for both thresholds at 0.5, whichever tests this process ran before."""
    tab.evaluate("runs[0].list.shown.clear()")  # harmful prompts that were opened
    for kind in KINDS:
        place(tab, kind, 0.5)
    for name, value in (
        {"part": "test", "sort": "id"} | dict.fromkeys(("label", "category", "trigger", "change"), "")
    ).items():
        tab.locator(f"select.{name}").select_option(value)
    tab.locator(".search").fill("")
    tab.locator(".unblur").uncheck()
    return tab
