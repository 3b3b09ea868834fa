"""A YAML file that cannot be read, and a library's error, give one line with the reason."""

from pathlib import Path

import pytest

from extract.errors import MOST_CHARS, in_one_line
from extract.yaml_file import read_yaml
from tests.support.one_line import mistake


def test_keys_and_values_are_read_as_utf8(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes("name: töte  # why\nlayers: [1, 2]\nnone:\n".encode())
    assert read_yaml(path, "recipe") == {"name": "töte", "layers": [1, 2], "none": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [", "is not readable YAML: while parsing a flow node"),
        (b"a: b: c", "is not readable YAML: mapping values are not allowed"),
        (b"\xff\xfe\xfa", "is not readable YAML: 'utf-8' codec can't decode byte 0xff"),
        (b"day: 2026-13-01", "is not readable YAML: month must be in 1..12"),
        (b"a: !!python/name:os.system", "is not readable YAML: could not determine a constructor"),
        (b"- a\n- b\n", "must hold keys and values, found list"),
        (b"name", "must hold keys and values, found str"),
        (b"# nothing yet\n", "must hold keys and values, found nothing"),
    ],
)
def test_what_is_wrong_with_the_content_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    assert mistake(read_yaml, path, "recipe").startswith(f"{path} {message}")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, message in (
        (tmp_path / "no.yaml", f"recipe not found: {tmp_path / 'no.yaml'}"),
        (tmp_path, f"{tmp_path} is a directory; give a YAML recipe"),
        (tmp_path / "file" / "x", f"cannot read the recipe {tmp_path / 'file' / 'x'}: Not a directory"),
    ):
        assert mistake(read_yaml, path, "recipe") == message


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("no such file\nTraceback", "no such file"),
        ("Error(s) in loading:\n\tsize mismatch for a\n\tanother", "Error(s) in loading: size mismatch for a"),
        ("  \n", "OSError"),
        ("only this:", "only this:"),
        ("x" * 500, "x" * (MOST_CHARS - 1) + "…"),
    ],
)
def test_an_error_in_one_line(said: str, line: str) -> None:
    assert in_one_line(OSError(said)) == line
