"""Bars: below a notebook's cell where there is one, else on standard error; silent ones show nothing."""

from __future__ import annotations

import re
import sys
import time
from types import SimpleNamespace

import pytest
import rich.progress  # noqa: F401 - before a test changes the clock, which it keeps

from extract import progress
from extract.progress import Advance, Heartbeat, Reporter, in_notebook


class Cell:
    """What a notebook shows below a cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: str, display_id: bool) -> Cell:
        assert display_id
        self.shown.append(html)
        return self

    def update(self, html: str | dict[str, str], raw: bool = False) -> None:
        assert isinstance(html, dict) is raw  # a saved notebook shall hold no empty object
        self.shown.append(html["text/html"] if isinstance(html, dict) else html)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    made = Cell()
    shell = SimpleNamespace(kernel=object(), has_trait=lambda name: name == "kernel")
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=made.display))
    monkeypatch.setattr(progress, "NOTEBOOK_INTERVAL_S", -1.0)
    return made


def test_a_notebook_shows_a_bar_and_removes_it(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_notebook()
    with Reporter().task("reading <b>", 4) as advance:
        advance(1)
        advance(3)
    first, one, four, last = cell.shown
    assert "reading &lt;b&gt;" in first
    assert '<progress value="0" max="4"></progress> 0/4' in first
    assert "1/4" in one
    assert "s left" in one
    assert "4/4" in four
    assert last == ""
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_removed_after_an_exception_and_may_have_no_end(cell: Cell) -> None:
    def fail(advance: Advance) -> None:
        advance(5)
        raise KeyError

    with pytest.raises(KeyError), Reporter().task("counting", None) as advance:
        fail(advance)
    assert cell.shown[-1] == ""
    assert "<progress></progress> 5" in cell.shown[1]


@pytest.mark.parametrize("shell", [None, SimpleNamespace(has_trait=lambda name: False)])
def test_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with Reporter().task("reading", 40) as advance:
        for _ in range(40):
            clock[0] += 2.0
            advance(1)
        advance(0)
    with Reporter().task("counting", None) as advance:
        clock[0] += 61.0
        advance(5)
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert lines == ["reading 16/40, 0.5/s, 48 s left", "reading 32/40, 0.5/s, 16 s left", "reading 40/40, 0.5/s, 80 s",
                     "counting 5, 0.1/s"]  # fmt: skip


def test_what_is_remembered_counts_as_done_and_not_in_the_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with Reporter(step="2/11 respond").task("plain completions", 1000) as advance:
        advance(900, remembered=True)
        clock[0] += 40.0
        advance(20)
        clock[0] += 160.0
        advance(80)
    with Reporter(step="2/11 respond").counted("plain completions", resumed=True) as count:
        for done, seconds in ((900, 40.0), (920, 160.0), (1000, 0.0)):
            count(done, 1000)
            clock[0] += seconds
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    expected = [
        "2/11 respond: plain completions 920/1000 (900 remembered), 0.5/s, 160 s left",
        "2/11 respond: plain completions 1000/1000 (900 remembered), 0.5/s, 200 s",
    ]
    assert lines == [*expected, *expected]


@pytest.mark.parametrize(("columns", "named"), [("80", "2/11 reading"), ("120", "2/11 respond: reading")])
def test_a_bar_on_a_terminal_shows_the_stage_and_a_rate_of_what_was_worked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str, named: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", columns)
    with Reporter(step="2/11 respond").task("reading", 1000) as advance:
        advance(990, remembered=True)
        time.sleep(0.05)
        advance(10)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).splitlines()[-1]
    assert named in shown
    assert "1000/1000" in shown
    rate = float(re.findall(r"([0-9.]+)/s", shown)[-1])
    assert 0 < rate <= 10 / 0.05


def test_no_line_while_a_bar_is_shown() -> None:
    lines: list[str] = []
    with Heartbeat("3/11 probe", lines.append, interval=0.02) as pulse:
        with pulse.bar():
            time.sleep(0.1)
            assert lines == []
        until = time.monotonic() + 10
        while not lines and time.monotonic() < until:
            time.sleep(0.005)
        assert lines


def test_a_stage_without_a_bar_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "INTERVAL_S", 0.02)
    logged: list[str] = []
    with Reporter(log=logged.append).stage("5/11 probe"):
        time.sleep(0.2)
    assert "5/11 probe: running for 0 s\n" in capsys.readouterr().err
    assert logged[0] == "5/11 probe begins"
    assert logged[1].startswith("5/11 probe done in ")
    with Reporter(quiet=True, log=logged.append).stage("5/11 probe"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    assert len(logged) == 4


def test_a_note_is_one_line_in_a_file_and_broken_between_words_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    Reporter().say("overconfidence uncertain_refused")
    assert capsys.readouterr().err == "Note: overconfidence uncertain_refused\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    Reporter().say("overconfidence uncertain_refused")
    lines = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in lines] == ["Note: overconfidence", "uncertain_refused"]
