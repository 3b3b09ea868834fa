"""What a narrow terminal shows: tables and lines are broken at words, and nothing of them is cut."""

import re
import sys
from pathlib import Path

import pytest

from refusal.cli.options import wrapped
from refusal.cli.print_results import print_stage, print_summary

WIDTH = 50


@pytest.mark.parametrize("stage", ["probe", "triggers", "dissociate", "steer", "report"])
def test_no_table_cuts_a_cell(
    small_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    def shown(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        print_summary(small_run, False) if stage == "report" else print_stage(small_run, stage, False)
        return capsys.readouterr().out

    narrow, wide = shown(WIDTH), shown(400)
    assert narrow.count("…") == wide.count("…")
    # every letter and digit of the wide form is there, in another order where cells are broken
    assert sorted(re.sub(r"\W", "", narrow)) == sorted(re.sub(r"\W", "", wide))


def test_a_line_is_broken_at_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"assuming    {'several words ' * 9}and a-long-word-{'x' * 60}"
    assert wrapped(line, 12) == line
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    lines = wrapped(line, 12).splitlines()
    assert len(lines) > 3
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert all(one.startswith(" " * 12) for one in lines[1:])
    assert all(len(one) <= WIDTH for one in lines[:-1])
