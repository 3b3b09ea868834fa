"""Executes docs/tutorial.ipynb; `python -m tests.support.tutorial` renews its outputs, after `make demo`.

Only what the code printed is kept: no times, no machine's names, no progress bars that have gone.
"""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from extract.shipped import ROOT

TUTORIAL = ROOT / "docs" / "tutorial.ipynb"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
LANGUAGE = {"language_info": {"name": "python"}}


def read_tutorial() -> NotebookNode:
    """Read the notebook as it is committed."""
    return nbformat.read(TUTORIAL, as_version=4)


def execute(folder: Path, timeout_s: int = 600) -> NotebookNode:
    """Execute the tutorial in a fresh kernel that starts in `folder` and imports this tree.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = read_tutorial()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    client = NotebookClient(notebook, timeout=timeout_s, kernel_name="python3", record_timing=False,
                            resources={"metadata": {"path": str(folder)}})  # fmt: skip
    client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_a_finished_bar(output)]
    notebook.metadata = nbformat.from_dict(KERNEL | LANGUAGE)
    return notebook


def texts(cell: NotebookNode) -> str:
    """Return what a code cell printed or returned, as plain text."""
    shown = (output.text if "text" in output else output.data.get("text/plain", "") for output in cell.outputs)
    return "\n".join(shown)


def _is_a_finished_bar(output: NotebookNode) -> bool:
    return output.output_type == "display_data" and output.data.get("text/html") == ""


if __name__ == "__main__":
    nbformat.write(execute(TUTORIAL.parent), TUTORIAL)
