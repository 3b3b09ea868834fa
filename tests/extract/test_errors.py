"""What a library's error says, in one line."""

import pytest

from extract.errors import MOST_CHARS, in_one_line


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
