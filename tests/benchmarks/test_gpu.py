"""The one command for a GPU: refused in one line without one; each row names the device and the date."""

from __future__ import annotations

import runpy
import sys

import pytest
import torch

from benchmarks import gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    monkeypatch.delitem(sys.modules, "benchmarks.gpu")  # as `python -m benchmarks.gpu` runs it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benchmarks.gpu", run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "make gpu needs a GPU, and torch finds none\n")


def test_a_row_names_the_device_and_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    row = gpu._row("steering", {"overhead_batch1": 1.01234})
    assert row.startswith(f"| `python -m benchmarks.steering` | Some GPU, torch {torch.__version__}, 20")
    assert row.endswith(" | overhead_batch1 1.012 |")
