"""Tables of completions with any column names, and their errors."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from scoring.readers.answers import read_answers
from scoring.readers.columns import ColumnMap, InputNotes, read_column_map
from tests.support.completion_files import ASKED, DATA, REFUSAL, ROW, SAID, answers, jsonl, judged
from tests.support.one_line import mistake


def test_all_tables_of_the_same_rows_are_equal(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "sample": 1, "text": "how\nso?", "label": "benign", "pair": "p", "completion": "Like this,\n\"so\"."},
        {"id": 2, "sample": 2, "text": "why?", "label": "harmful", "pair": None, "completion": ""},
    ]  # fmt: skip
    expected = [row | {"id": str(row["id"])} for row in rows]
    del expected[1]["pair"]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    jsonl(tmp_path / "a.jsonl", *rows)
    for suffix, first in [("jsonl", "line 1"), ("json", "item 1"), ("csv", "line 4"), ("parquet", "line 1")]:
        path = tmp_path / f"a.{suffix}"
        read = answers(path)
        assert read[0]["place"] == f"{path}, {first}"
        assert [{name: value for name, value in row.items() if name != "place"} for row in read] == expected


@pytest.mark.parametrize("content", [REFUSAL, [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": REFUSAL}]])
def test_a_transcript_is_its_last_turn_and_what_went_before(tmp_path: Path, content: Any) -> None:
    said = {"role": "assistant", "content": content}
    row = {"id": "a", "messages": [ASKED, said]}
    (read,) = answers(jsonl(tmp_path / "a.jsonl", row))
    assert (read["messages"], read["text"], read["completion"]) == ([ASKED], ASKED["content"], REFUSAL)
    (tmp_path / "a.csv").write_text('id,messages\na,"' + json.dumps(row["messages"]).replace('"', '""') + '"\n')
    assert answers(tmp_path / "a.csv")[0] | {"place": ""} == read | {"place": ""}
    if content == REFUSAL:  # a column of a Parquet file has one type
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "a.parquet")
        assert answers(tmp_path / "a.parquet")[0] | {"place": ""} == read | {"place": ""}
    mapped = jsonl(tmp_path / "b.jsonl", {"id": "a", "conversation": row["messages"]})
    assert answers(mapped, "messages=conversation")[0]["completion"] == REFUSAL


def test_a_completion_goes_before_a_last_turn_and_rows_without_one_are_kept(tmp_path: Path) -> None:
    for completion, before in [(REFUSAL, [ASKED]), ("Another.", [ASKED, SAID]), (None, [ASKED, SAID])]:
        path = jsonl(tmp_path / "a.jsonl", {"id": "a", "messages": [ASKED, SAID], "completion": completion})
        (read,) = answers(path)
        assert (read["completion"], read["messages"]) == (completion, before)
    rows = [{"id": "a", "error": "timeout"}, {"id": "b", "completion": None}, ROW, {"id": "d"}]
    read = answers(jsonl(tmp_path / "a.jsonl", *rows))
    assert [answer["completion"] for answer in read] == [None, None, REFUSAL, None]


@pytest.mark.parametrize(("value", "said"), [(42, "42"), (True, "true"), (float("nan"), None), ([], "")])
def test_a_completion_that_is_no_text(tmp_path: Path, value: Any, said: str | None) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"id": "a", "completion": value})
    assert answers(path)[0]["completion"] == said


NESTED = {"custom_id": "a", "kind": "ok", "output": {"choices": [{"message": {"content": REFUSAL}}]}, "n": 1}


def test_columns_are_mapped_and_reach_into_objects_and_lists_unless_named_with_points(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", NESTED, NESTED | {"custom_id": "b", "output": {"choices": []}})
    read = answers(path, "id=custom_id", "completion=output.choices.0.message.content", "category = kind", "sample=n")
    whole = {"id": "a", "sample": 1, "category": "ok", "completion": REFUSAL, "place": f"{path}, line 1"}
    assert read[0] == whole
    assert read[1]["completion"] is None
    (tmp_path / "a.csv").write_text("id,model.output\na,flat\n")
    assert answers(tmp_path / "a.csv", "completion=model.output")[0]["completion"] == "flat"
    said = mistake(lambda: answers(tmp_path / "a.csv"))
    assert said.endswith("; use --map completion=model.output; the columns are id, model.output")


def test_rows_may_be_numbered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"completion": "x"}\n\n{"completion": "y"}\n')
    assert [answer["id"] for answer in answers(path, "id=#")] == ["1", "2"]
    (tmp_path / "a.csv").write_text("#,completion\n17,x\n")
    assert answers(tmp_path / "a.csv", "id=#")[0]["id"] == "17"  # a column of that name


def test_a_yaml_file_maps_columns_values_and_constants(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", NESTED, NESTED | {"kind": "bad"})
    (tmp_path / "map.yaml").write_text(
        "columns:\n"
        "  id: {column: custom_id, numbered: true}\n"
        "  completion: output.choices.0.message.content\n"
        "  label: {column: kind, map: {ok: benign, bad: harmful}}\n"
        "constants: {source: mine, category: none}\n"
    )
    read = list(read_answers(path, InputNotes(), read_column_map(["category=kind"], tmp_path / "map.yaml")))
    read = [(a["id"], a["label"], a["source"], a["category"]) for a in read]
    assert read == [("a/1", "benign", "mine", "ok"), ("a/2", "harmful", "mine", "bad")]
    (tmp_path / "map.yaml").write_text("columns: {completion: kind, label: {column: kind, map: {ok: benign}}}")
    columns = read_column_map(["id=#"], tmp_path / "map.yaml")
    said = mistake(lambda: list(read_answers(path, InputNotes(), columns)))
    assert "line 2: column 'kind' is 'bad', which is not in the map of 'label'; the map has ok" in said


def test_a_map_goes_before_what_a_log_says_itself() -> None:
    labels = {"homonyms": "benign", "violence": "harmful", "people": "uncertain", "errors": None}
    label = {"column": "metadata.category", "map": labels}
    columns = ColumnMap.model_validate({"columns": {"label": label}, "constants": {"category": None}})
    read = {answer["id"]: answer for answer in read_answers(DATA / "inspect.eval", InputNotes(), columns)}
    assert {name: answer.get("label") for name, answer in read.items()} == {
        "kill-process": "benign", "2": "harmful", "who": "uncertain", "breaks": None, "empty": None,
    }  # fmt: skip
    assert all("category" not in answer for answer in read.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["completion"], "--map takes FIELD=COLUMN, got 'completion'; for instance --map completion=response"),
        (["=x"], "--map takes FIELD=COLUMN, got '=x'"),
        (["id=a", "id=b"], "--map names 'id' twice: 'a' and 'b'"),
        (["complet=x"], "--map: no such field: complet; did you mean completion?"),
        (["zzz=x"], "--map: no such field: zzz; a completion has id, sample, text, messages, completion, label,"),
    ],
)
def test_a_mistaken_option_is_explained(options: list[str], said: str) -> None:
    assert mistake(lambda: read_column_map(options)).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("columns: {complet: x}", "map.yaml: columns: no such field: complet; did you mean completion?"),
        ("columns: {id: {colum: x}}", "map.yaml: "),
        (None, "column map not found: "),
    ],
)
def test_a_mistaken_yaml_file_is_explained(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "map.yaml").write_text(text)
    assert said in mistake(lambda: read_column_map((), tmp_path / "map.yaml"))


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        ({"prompt": "How?", "response": "So."}, {"id": "row 1", "text": "How?", "completion": "So."}),
        ({"ID": 7, "Question": "How?", "Output": "So."}, {"id": "7", "text": "How?", "completion": "So."}),
        ({"id": 1, "instruction": "a", "input": "b", "output": "So."}, {"id": "1", "completion": "So."}),
        ({"id": 1, "question": "How?", "answer": "Bern", "reply": "So."},
         {"id": "1", "text": "How?", "completion": "So.", "answer": "Bern"}),
        ({"id": 1, "text": "How?", "prompt": "other", "Model Response": "So."},
         {"id": "1", "text": "How?", "completion": "So."}),
    ],
)  # fmt: skip
def test_usual_names_of_columns_are_guessed_and_counted(tmp_path: Path, row: dict, fields: dict) -> None:
    notes, path = InputNotes(), jsonl(tmp_path / "a.jsonl", row)
    (read,) = answers(path, notes=notes)
    assert {name: value for name, value in read.items() if name != "place"} == fields
    assert set(notes.guessed.values()) == {1}


def test_a_map_goes_before_a_guess(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "p", "question": "q", "response": "r", "other": "o", "key": "k"})
    notes = InputNotes()
    (read,) = answers(path, "completion=other", "text=question", "id=key", notes=notes)
    assert (read["completion"], read["text"], read["id"]) == ("o", "q", "k")
    assert not notes.guessed


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a", "my_response": "x"}, "; use --map completion=my_response; the columns are id, my_response"),
        ({"id": "a", "model_output": "x", "generation": "y"}, "; use --map completion=model_output (or generation);"),
        (NESTED, "; use --map completion=output.choices.0.message.content; the columns are custom_id, kind, output, n"),
        ({"id": "a", "answer": "x", "q": "?"}, "; name its column with --map completion=COLUMN; the columns are id,"),
        ({"id": "a", "response": 5}, "; name its column with --map completion=COLUMN; the columns are id, response"),
        ({"id": "a", "messages": [ASKED]}, "; name its column with --map completion=COLUMN"),
    ],
)
def test_without_completions_the_likely_column_is_named(tmp_path: Path, row: dict, said: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", row, row)
    assert f"{path}: no row has a field 'completion'{said}" in mistake(lambda: answers(path))


def test_a_column_that_no_row_has_names_the_nearest(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", NESTED, NESTED)
    for column, near in [("custom-id", "custom_id"), ("output.choices.0.content", "output.choices.0.message.content")]:
        assert mistake(lambda column=column: answers(path, f"completion={column}")) == (
            f"{path}: no row has a column '{column}', needed for field 'completion'; did you mean --map "
            f"completion={near}? the columns are custom_id, kind, output, n"
        )
    columns = ColumnMap.model_validate({"columns": {"completion": {"column": "kind", "unless": {"knd": ["bad"]}}}})
    said = mistake(lambda: list(read_answers(path, InputNotes(), columns)))
    assert "no row has a column 'knd', needed for field 'completion'" in said
    said = mistake(lambda: answers(path, "completion=kind", "label=zzzzzz"))
    assert "needed for field 'label'; the columns are" in said


def test_a_column_that_only_a_late_row_has_is_there(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *[{"id": i, "completion": "x"} for i in range(3000)], ROW | {"late": "yes"})
    assert [answer.get("category") for answer in answers(path, "category=late")] == [None] * 3000 + ["yes"]
    read = read_answers(path, InputNotes(), read_column_map(["category=later"]))
    assert len([next(read) for _ in range(500)]) == 500  # a long file is judged before its end is known
    assert "no row has a column 'later'" in mistake(lambda: list(read))


@pytest.mark.parametrize(
    ("value", "said"), [*((nothing, "is missing") for nothing in (None, "", " ")), (True, "is True"), (1.5, "is 1.5")]
)
def test_a_row_without_an_id_is_an_error_with_a_remedy(tmp_path: Path, value: Any, said: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", ROW, ROW | {"id": value})
    message = mistake(lambda: answers(path))
    assert message.startswith(f"{path}, line 2: field 'id' {said}")
    assert "name its column with --map id=COLUMN, or number the rows with --map id=#; the columns are id," in message
    assert [answer["id"] for answer in answers(path, "id=#")] == ["1", "2"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"category": ["x"]}, "field 'category' is list; expected text"),
        ({"messages": "hello"}, "field 'messages' is str; expected a list of {role, content}"),
        ({"messages": [{"content": "x"}]}, "field 'messages': each needs a role, and content that is text"),
        ({"messages": [ASKED | {"content": {"a": 1}}]}, "field 'messages': each needs a role, and content"),
        ({"completion": {"text": "x"}}, "name a column inside it, for instance --map completion=completion.text"),
        ({"completion": ["x", "y"]}, "name a column inside it, for instance --map completion=completion.0"),
    ],
)
def test_an_invalid_field_is_an_error_with_its_line(tmp_path: Path, changes: dict, said: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", ROW, ROW | changes)
    message = mistake(lambda: answers(path))
    assert message.startswith(f"{path}, line 2: ")
    assert said in message


def test_windows_apostrophes_are_apostrophes_and_their_rows_are_counted(tmp_path: Path) -> None:
    path, notes = tmp_path / "a.csv", InputNotes()
    path.write_bytes(b"id,completion\na,fine\n" + f'b,"{REFUSAL}"\nc,"{REFUSAL}"\n'.encode("cp1252"))
    read = answers(path, notes=notes)
    assert [answer["completion"] for answer in read] == ["fine", REFUSAL, REFUSAL]
    assert judged(read[1]["completion"]).action == "refuse"
    assert (notes.windows_1252, notes.replaced) == (2, 0)
    assert notes.record()["not UTF-8, read as Windows-1252 (--encoding names another)"].n == 2
    named = InputNotes()
    assert answers(path, encoding="cp1252", notes=named)[1]["completion"] == REFUSAL
    assert named == InputNotes()
    assert "no such text encoding: 'cp12525'" in mistake(lambda: answers(path, encoding="cp12525"))


def test_half_an_emoji_can_be_written_afterwards(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "\udc92"}]
    halves = ROW | {"completion": "well \ud83d", "messages": turns, "category": "\udfff"}
    path, notes = jsonl(tmp_path / "a.jsonl", ROW, halves, ROW | {"completion": "a whole 🙂"}), InputNotes()
    read = answers(path, notes=notes)
    said = read[1]["completion"], read[1]["messages"][0]["content"], read[1]["category"]
    assert said == ("well \ufffd", "\ufffd", "\ufffd")
    assert read[2]["completion"] == "a whole 🙂"
    json.dumps(read, ensure_ascii=False).encode()
    assert notes == InputNotes(replaced=1)
    assert notes.record()["with characters that are no valid Unicode, replaced"].n == 1


@pytest.mark.parametrize("mapped", [False, True])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, mapped: bool) -> None:
    few, many = (most_blocks(many_rows(tmp_path / f"{n}.jsonl", n), mapped) for n in (1_500, 20_000))
    assert many < few + 1_000


def test_the_measure_of_memory_sees_a_map_that_counts_every_value(tmp_path: Path) -> None:
    few, many = (most_blocks(many_rows(tmp_path / f"{n}.jsonl", n), True, numbered=True) for n in (1_500, 20_000))
    assert many > few + 15_000


def many_rows(path: Path, n: int) -> Path:
    return jsonl(path, *({"key": f"row {i}", "id": i, "completion": f"{i} is its number"} for i in range(n)))


def most_blocks(path: Path, mapped: bool, numbered: bool = False) -> int:
    """Return how many more blocks of memory Python held, at the most, than before the completions were read."""
    given = {"columns": {"id": {"column": "key", "numbered": numbered}}} if mapped else {}
    columns = ColumnMap.model_validate(given)
    before = sys.getallocatedblocks()
    read = enumerate(read_answers(path, InputNotes(), columns))
    return max(sys.getallocatedblocks() for i, _ in read if i % 500 == 0) - before
