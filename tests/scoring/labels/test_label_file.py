"""labels.jsonl while people label: on disk at once, undone to the byte, safe from a cut-off line."""

from pathlib import Path

import pytest

from extract.errors import UserError
from scoring.labels.label_file import Label, LabelFile, read_labels


def label(identifier: str, action: str = "answer", annotator: str = "ann") -> Label:
    return Label(id=identifier, sample="", action=action, annotator=annotator, inclusion=0.5, seed=3)


def test_each_label_is_in_the_file_as_soon_as_it_is_added(tmp_path: Path) -> None:
    file = LabelFile(tmp_path / "labels.jsonl")
    for n, identifier in enumerate("abc", start=1):
        file.add(label(identifier))
        assert read_labels(file.path) == [label(i) for i in "abc"[:n]]


def test_undo_restores_the_bytes_and_ends_with_the_session(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    LabelFile(path).add(label("a"))
    before = path.read_bytes()
    file = LabelFile(path)
    assert file.undo() is None  # the label of the session before stays
    file.add(label("b"))
    file.add(label("c"))
    assert [file.undo(), file.undo(), file.undo()] == [label("c"), label("b"), None]
    assert path.read_bytes() == before
    assert set(file.of("ann")) == {("a", "")}


def test_undo_never_removes_what_another_session_wrote(tmp_path: Path) -> None:
    ann, bob = LabelFile(tmp_path / "labels.jsonl"), LabelFile(tmp_path / "labels.jsonl")
    ann.add(label("a"))
    bob.add(label("a", annotator="bob"))
    with pytest.raises(UserError, match="later labels of another session"):
        ann.undo()
    assert len(read_labels(ann.path)) == 2
    assert LabelFile(ann.path).annotators() == ["ann", "bob"]


@pytest.mark.parametrize(
    ("tail", "kept"), [(b'{"id": "c", "act', 2), (b'{"id": "c", "action": "answer", "inclusion": 1}', 3)]
)
def test_a_line_that_a_crash_cut_off_is_removed_and_a_whole_one_kept(tmp_path: Path, tail: bytes, kept: int) -> None:
    path = tmp_path / "labels.jsonl"
    first = LabelFile(path)
    first.add(label("a"))
    first.add(label("b"))
    path.write_bytes(path.read_bytes() + tail)
    file = LabelFile(path)
    file.add(label("d"))
    assert len(read_labels(path)) == kept + 1


def test_a_larger_draw_changes_the_inclusion_of_earlier_labels_only(tmp_path: Path) -> None:
    file = LabelFile(tmp_path / "labels.jsonl")
    file.add(label("a"))
    file.set_inclusion({("a", ""): 0.8, ("b", ""): 0.8})
    assert read_labels(file.path) == [label("a").model_copy(update={"inclusion": 0.8})]
    with pytest.raises(UserError, match="label of id 'a', which is not in the draw"):
        file.set_inclusion({("b", ""): 0.8})


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        LabelFile(tmp_path / "nowhere" / "labels.jsonl").add(label("a"))
