"""In a Jupyter kernel: tables of values, bars while they are made, and one line for a user's mistake."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

import refusal
from extract.errors import UserError
from extract.html_table import html_table
from extract.shipped import ROOT

CELLS = (
    "import refusal\nfrom extract import progress\nprogress.NOTEBOOK_INTERVAL_S = 0.0\n"
    "model = refusal.load_model('organisms/zoo/two-knobs')\n"
    "prompts = refusal.load_prompts('organisms/zoo/two-knobs/prompts.jsonl')[:60]",
    "activations = model.activations(prompts, positions=['post_last', 'trigger_last'], layers=[0, 3])\nactivations",
    "refusal.probe_layers(activations, activations.labels, positive='harmful', n_folds=2)",
    "run = refusal.load_run('runs/quickstart')\nrun",
    "refusal.load_run('nowhere')",
    "refusal.fit_direction(activations, activations.labels, layer=3, positive='hramful')",
)


class Kernel(NotebookClient):
    """Keeps what a cell shows for a while, too."""

    def process_message(self, msg: dict, cell: NotebookNode, cell_index: int) -> object:
        if "data" in msg["content"]:
            self.shown = [*getattr(self, "shown", []), msg["content"]["data"].get("text/html", "")]
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def kernel(notebook: Path) -> Kernel:
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS]
    made = Kernel(
        nbformat.v4.new_notebook(cells=cells), timeout=120, kernel_name="python3", allow_errors=True,
        resources={"metadata": {"path": str(notebook)}},
    )  # fmt: skip
    made.execute(env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    return made


def html(kernel: Kernel, cell: int) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in kernel.nb.cells[cell].outputs)


def words(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page).split())


def test_activations_show_how_many_prompts_have_a_position(kernel: Kernel) -> None:
    shown = words(html(kernel, 1))
    assert "60 prompts, resid_post, layers 0, 3" in shown
    assert re.search(r"position harmful benign all post_last (\d+) (\d+) 60 trigger_last \d+ \d+ \d+$", shown)


def test_probes_show_the_best_layer_of_each_position(kernel: Kernel) -> None:
    shown = words(html(kernel, 2))
    assert re.search(r"position layer AUROC low high post_last 3 1\.000 0\.\d{3} 1\.000 trigger_last", shown), shown


def test_a_run_shows_its_verdicts_and_rates(kernel: Kernel, notebook: Path) -> None:
    shown, rates = words(html(kernel, 3)), refusal.load_run(notebook / "runs" / "quickstart").results.rates
    assert "one refusal or two Two mechanisms (double dissociation)" in shown
    before, after = f"{rates.before.overconfidence:.1%}", f"{rates.after.overconfidence:.1%}"
    assert f"overconfidence {before} {after} {rates.before.overconfidence.n}" in shown


def test_a_bar_is_shown_while_it_works_and_gone_at_the_end(kernel: Kernel) -> None:
    assert re.search(
        r'reading activations <progress value="\d+" max="60"></progress> [1-9]\d*/60', " ".join(kernel.shown)
    )
    assert "<progress" not in "".join(html(kernel, cell) for cell in range(len(CELLS)))


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (4, "UserError: nowhere holds no results.json; a finished run is written by: refusal run CONFIG"),
        (5, "UserError: no prompt has the label 'hramful'; there are benign, harmful"),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(kernel: Kernel, cell: int, line: str) -> None:
    [error] = [output for output in kernel.nb.cells[cell].outputs if output.output_type == "error"]
    assert error.traceback == [line]


def test_other_mistakes_are_named(model, found, harm, notebook: Path, tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("no tensors in here, but enough of them to have a length")
    weights = "organisms/zoo/two-knobs/model.safetensors"
    for call, line in (
        (lambda: refusal.load_directions(tmp_path / "none"), "directions not found: .*none; give a file of"),
        (lambda: refusal.load_directions(tmp_path), "is a directory without directions.safetensors; make it with"),
        (lambda: refusal.load_directions(tmp_path / "text.safetensors"), "cannot be read as directions: "),
        (lambda: refusal.load_directions(weights), "was not written by save_directions"),
        (lambda: refusal.save_directions([harm, harm], tmp_path / "x"), "must have different names, got harmful, harm"),
        (lambda: refusal.save_directions({"a": harm}, tmp_path / "x"), "give a list of Directions, .*; got str"),
        (lambda: refusal.save_directions([harm], tmp_path / "no" / "x"), "there is no folder .*; make it first"),
        (lambda: refusal.fit_direction(found.values, found.labels, layer=3), "give the Activations of .* got ndarray"),
        (lambda: refusal.probe_layers(found.values, found.labels), "give the Activations of .* got ndarray"),
        (lambda: refusal.attribute(model, "hi", run=tmp_path), "is no run: it has no completions.jsonl"),
    ):
        with pytest.raises(UserError, match=line):
            call()
    assert set(refusal.load_directions(notebook / "runs" / "quickstart")) >= {"normative_write", "epistemic_write"}


def test_what_a_table_shows_is_escaped() -> None:
    table = html_table("<b>", ["<i>"], [["<script>", 0.25], ["a & b", "x"]])
    assert not {"<b>", "<i>", "<script>"} & set(re.findall("<[^>]+>", table))
    assert "0.250" in table
    assert "a &amp; b" in table


def test_every_value_has_a_table(found: refusal.Activations, notebook: Path) -> None:
    run = notebook / "runs" / "quickstart"
    scored = refusal.score([{"label": "benign", "completion": "I can't help with that."}])
    values = (found, refusal.load_run(run), refusal.load_dials(run), scored, scored.rates,
              refusal.WordScores("<x>", ("<x>",), (1.0,), 1.0, "<x>"))  # fmt: skip
    pages = [value._repr_html_() for value in values]
    assert all("<table" in page and "<x>" not in page for page in pages)
    assert "over_refusal 100.0%" in words(pages[3])
    assert "normative 0." in words(pages[2])
