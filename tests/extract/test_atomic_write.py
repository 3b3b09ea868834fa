"""Files are written atomically, also by several processes at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from extract.atomic_write import atomic_path, write_json, write_jsonl
from extract.shipped import ROOT
from tests.support.one_line import refused

WRITER = """
import sys
from pathlib import Path
from extract.atomic_write import write_json
for _ in range(300):
    write_json(Path(sys.argv[1]), {"by": sys.argv[2] * 2000})
"""


def test_what_fails_leaves_the_former_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"n": 1})
    with pytest.raises(ZeroDivisionError), atomic_path(path) as partial:
        partial.write_text(str(1 / 0))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_jsonl(path, [{"n": 2}, {"n": float("nan")}])
    assert json.loads(path.read_text()) == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    refused(r"cannot write .*: No such file or directory", write_json, tmp_path / "absent" / "a.json", {})


def test_processes_that_write_one_file_at_a_time_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    for writer in writers:
        assert writer.wait(60) == 0, writer.stderr.read()
    assert len(json.loads(path.read_text())["by"]) == 2000
    assert list(tmp_path.iterdir()) == [path]
