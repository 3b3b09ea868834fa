"""Long work is not silent: a line where nothing else was printed, none where there was or where a bar is shown."""

import time

import pytest

from extract import progress
from extract.progress import Heartbeat, Reporter


def wait_for(lines: list[str], n: int) -> None:
    until = time.monotonic() + 10
    while len(lines) < n and time.monotonic() < until:
        time.sleep(0.005)
    assert len(lines) >= n


def test_a_line_after_each_silent_interval() -> None:
    lines: list[str] = []
    with Heartbeat("3/11 probe", lines.append, interval=0.02):
        wait_for(lines, 2)
    assert set(lines) == {"3/11 probe: running for 0 s"}
    count = len(lines)
    time.sleep(0.06)
    assert len(lines) == count  # it has ended


def test_no_line_while_a_bar_is_shown() -> None:
    lines: list[str] = []
    with Heartbeat("3/11 probe", lines.append, interval=0.02) as pulse:
        with pulse.bar():
            time.sleep(0.1)
            assert lines == []
        wait_for(lines, 1)


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
