"""The tutorial notebook is valid, small and free of machine names; executed again, it prints what is committed."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest

from extract.shipped import ROOT
from tests.support.shown_output import absent
from tests.support.tutorial import KERNEL, LANGUAGE, TUTORIAL, execute, read_tutorial, texts

LINK = re.compile(r"\]\(([^)#:]+)(?:#([^)]*))?\)")
MACHINE = re.compile(r"(?<![\w.])/(?:home|tmp|usr|root|work|opt|mnt|private|Users|var)/|[A-Z]:\\")
TABLE = "text/html"  # of a value, whose text is committed
NEEDS_RUN = "finished-run"  # the tag of a cell that reads runs/quickstart


@pytest.fixture(scope="module")
def cells() -> list[nbformat.NotebookNode]:
    return [cell for cell in read_tutorial().cells if cell.cell_type == "code"]


def test_every_cell_was_executed_once_from_top_to_bottom(cells: list[nbformat.NotebookNode]) -> None:
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    quiet = [cell.source for cell in cells if not cell.outputs]
    assert [source.split()[1] for source in quiet] == [
        "importlib.util",
        "os",
        "sys",
    ]  # installs, sets up, makes the run


def test_outputs_hold_no_warnings_errors_bars_or_machine_paths(cells: list[nbformat.NotebookNode]) -> None:
    for cell in cells:
        assert {output.output_type for output in cell.outputs} <= {"stream", "execute_result"}
        assert all(output.get("name") != "stderr" for output in cell.outputs)
        shown = texts(cell) + "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
        assert not MACHINE.search(shown)
        assert "Warning" not in shown


def test_metadata_names_no_machine_and_no_time(cells: list[nbformat.NotebookNode]) -> None:
    assert read_tutorial().metadata == KERNEL | LANGUAGE
    assert [cell.metadata for cell in cells if not set(cell.metadata) <= {"tags"}] == []


def test_its_links_lead_somewhere() -> None:
    text = "\n".join(cell.source for cell in read_tutorial().cells if cell.cell_type == "markdown")
    assert len(LINK.findall(text)) > 10
    for page, anchor in LINK.findall(text):
        assert (TUTORIAL.parent / page).exists(), page
        assert not anchor or f'<a id="{anchor}">' in (TUTORIAL.parent / page).read_text(encoding="utf-8"), anchor


@pytest.mark.slow
def test_executed_again_it_prints_what_is_committed(
    tmp_path: Path, quickstart: Path, cells: list[nbformat.NotebookNode]
) -> None:
    for name in ("organisms", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "runs").mkdir()
    shutil.copytree(quickstart, tmp_path / "runs" / "quickstart", ignore=shutil.ignore_patterns("activations.h5*"))
    executed = [cell for cell in execute(tmp_path / "docs").cells if cell.cell_type == "code"]
    for cell, known in zip(executed, cells, strict=True):
        assert [output.text for output in cell.outputs if output.get("name") == "stderr"] == []
        assert absent(texts(known), texts(cell)) == "", cell.source
        shown, kept = ([o.get("data", {}).keys() - {TABLE} for o in one.outputs] for one in (cell, known))
        assert shown == kept
