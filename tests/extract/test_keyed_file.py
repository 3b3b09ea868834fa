"""Rows by key in a file: several processes at once, damaged files, and files of another kind."""

import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from extract.keyed_file import KeyedFile
from extract.shipped import ROOT
from tests.support.one_line import refused


def opened(path: Path, columns: tuple[str, ...] = ("a", "b")) -> KeyedFile:
    return KeyedFile(path, "things", columns, purpose="the list of things", remedy="delete it")


def test_what_was_put_is_found_by_another_and_the_rest_is_not(tmp_path: Path) -> None:
    first, second = (opened(tmp_path / "deep" / "f.sqlite") for _ in range(2))
    first.put({"k": ("1", None), "l": ("2", "zwei")})
    assert second.get(["l", "m", "k"]) == {"k": ("1", None), "l": ("2", "zwei")}
    second.put({"k": ("3", "")})
    assert first.get(["k"]) == {"k": ("3", "")}
    assert first.get([]) == {}


def test_rows_are_put_all_or_none(tmp_path: Path) -> None:
    file = opened(tmp_path / "f.sqlite")
    refused("the list of things", file.put, {"k": ("1", "2"), "l": ("only one",)})
    assert file.get("kl") == {}
    file.put({"k": ("1", "2")})  # and it goes on after that
    assert file.get("kl") == {"k": ("1", "2")}


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from extract.keyed_file import KeyedFile
        file = KeyedFile(Path(sys.argv[1]), "things", ("a",), purpose="", remedy="")
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(60):
            file.put({f"{sys.argv[2]}/{n}/{m}": (str(n),) for m in range(5)})
            assert len(file.get([f"{sys.argv[2]}/{i}/4" for i in range(60)])) == n + 1
    """)
    path = tmp_path / "f.sqlite"
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(i)], cwd=ROOT, text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in range(3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    errors = [process.communicate("go\n")[1] for process in processes]
    assert [(process.returncode, error) for process, error in zip(processes, errors, strict=True)] == [(0, "")] * 3
    with sqlite3.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM things").fetchone() == (900,)
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("content", [b"something else entirely " * 50, b"\0" * 4096], ids=["text", "zeros"])
def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.sqlite"
    path.write_bytes(content)
    refused(r"cannot use .*f\.sqlite as the list of things: .*; delete it$", opened, path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("shape", ["notes (a TEXT)", "things (key TEXT PRIMARY KEY, a TEXT)"])
def test_another_kind_of_database_is_refused_and_unchanged(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "f.sqlite"
    with sqlite3.connect(path) as other:
        other.execute(f"CREATE TABLE {shape}")
    before = path.read_bytes()
    refused("it is another kind of database; delete it", opened, path)
    assert path.read_bytes() == before


def test_what_is_wrong_around_it_is_no_reason_to_delete_it(tmp_path: Path) -> None:
    refused(r"unable to open database file; nothing in it is lost; free disk space or set", opened, tmp_path)
