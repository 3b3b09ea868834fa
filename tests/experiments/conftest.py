"""The command line, called in this process."""

import sys
from pathlib import Path

import pytest

from experiments.cli import main

sys.path.append(str(Path(__file__).parent))  # for chat_server


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command line in this process; returns (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["refusal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call
