"""Atomic writes: whole or not at all, also where several write one file at once."""

from pathlib import Path

import pytest

from extract.atomic_write import atomic_path, write_text


def test_the_last_of_several_writers_at_once_is_kept_and_nobody_fails(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with atomic_path(path) as one:
        one.write_text("one")
        write_text(path, "other")
        assert path.read_text() == "other"
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write_text(path, "before")

    def fail() -> None:
        with atomic_path(path) as partial:
            partial.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
