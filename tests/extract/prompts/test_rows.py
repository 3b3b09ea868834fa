"""Rows of files of any size; invalid bytes are refused, or repaired and counted."""

import csv
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from extract.prompts.rows import LONGEST_FIELD, read_rows
from tests.support.one_line import mistake

SAID = "I\u2019m sorry, but I can\u2019t \u2014 “really” — help. 你好 🙂"


def strict(path: Path, encoding: str | None = None) -> list[dict]:
    return [row for _, row in read_rows(path, "rows", encoding=encoding)]


def lenient(path: Path, encoding: str | None = None) -> tuple[list[dict], dict[str, int]]:
    told: Counter[str] = Counter()
    rows = [row for _, row in read_rows(path, "rows", encoding=encoding, on_repair=lambda how: told.update([how]))]
    return rows, dict(told)


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# Encodings.


@pytest.mark.parametrize(
    ("mark", "encoding"), [("", "utf-8"), ("\ufeff", "utf-8"), ("\ufeff", "utf-16-le"), ("\ufeff", "utf-16-be")]
)
@pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.json"])
def test_utf8_and_utf16_are_known_by_their_mark(tmp_path: Path, name: str, mark: str, encoding: str) -> None:
    path = put(tmp_path / name, (mark + written(name, SAID)).encode(encoding))
    assert strict(path) == [{"id": "a", "said": SAID}]
    assert lenient(path) == (strict(path), {})


@pytest.mark.parametrize(("encoding", "said"), [("latin-1", "très sûr"), ("shift_jis", "できません"), ("utf-16", SAID)])
def test_another_encoding_is_read_where_it_is_named(tmp_path: Path, encoding: str, said: str) -> None:
    path = put(tmp_path / "p.csv", written("p.csv", said).encode(encoding))
    assert strict(path, encoding)[0]["said"] == said
    assert lenient(path, encoding) == (strict(path, encoding), {})


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("latin-11", "did you mean latin"), ("zzz", "use for example utf-8, latin-1"), ("hex", "no such text encoding")],
)
def test_an_unknown_encoding_names_a_known_one(tmp_path: Path, encoding: str, said: str) -> None:
    message = mistake(strict, put(tmp_path / "p.csv", b"id\n1\n"), encoding)
    assert message.startswith(f"no such text encoding: '{encoding}'; ")
    assert said in message


# Bytes that are no text.


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.json"])
def test_windows_quotes_are_refused_with_their_line_or_read_as_quotes(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, written(name, "it\u2019s  \u201cno\u201d").encode("cp1252"))
    line = 1 if name != "p.csv" else 2
    assert mistake(strict, path) == f"{path}, line {line}: not UTF-8 text: invalid start byte; save the file as UTF-8"
    assert lenient(path) == ([{"id": "a", "said": "it\u2019s  \u201cno\u201d"}], {"windows_1252": 1})


def test_only_the_bytes_that_are_no_utf8_are_read_otherwise_and_rows_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    broken = b'b,"it\x92s\nnot\x92 \xe2\x80\x99 all\r\nof it\x81"\r\n'
    path.write_bytes(b"id,said\r\na,plain\r\n" + broken + "c,très\r\n".encode())
    rows, told = lenient(path)
    assert [row["said"] for row in rows] == ["plain", "it\u2019s\nnot\u2019 \u2019 all\r\nof it\ufffd", "très"]
    assert told == {"windows_1252": 1}
    assert ", line 3: not UTF-8 text: invalid start byte" in mistake(strict, path)


def test_a_cut_character_is_refused_at_its_line_or_repaired(tmp_path: Path) -> None:
    path = put(tmp_path / "p.csv", b"id\na\n\xe2\x80")
    assert ", line 3: not UTF-8 text: unexpected end of data" in mistake(strict, path)
    assert lenient(path) == ([{"id": "a"}, {"id": "â€"}], {"windows_1252": 1})
    path.write_bytes("\ufeffid\na\n".encode("utf-16-le") + b"x")
    for read in (strict, lenient):
        assert "p.csv, line 3: not UTF-16-LE text: truncated data" in mistake(read, path)


def test_half_a_pair_in_utf16_and_bytes_foreign_to_a_named_encoding_become_a_mark(tmp_path: Path) -> None:
    path = put(tmp_path / "p.csv", "\ufeffid\na".encode("utf-16-le") + b"\x3d\xd8" + "b\n".encode("utf-16-le"))
    assert ", line 2: not UTF-16-LE text: half of a surrogate pair" in mistake(strict, path)
    assert lenient(path) == ([{"id": "a\ufffdb"}], {"replaced": 1})
    path.write_bytes(b"id\na\x92b\n")
    assert ", line 2: not ASCII text: " in mistake(strict, path, "ascii")
    assert lenient(path, "ascii") == ([{"id": "a\ufffdb"}], {"replaced": 1})


def test_json_escapes_are_no_bytes_and_are_left_to_the_reader(tmp_path: Path) -> None:
    path = put(tmp_path / "p.jsonl", json.dumps({"said": "\ud83d \udc92 🙂"}).encode())
    assert strict(path) == [{"said": "\ud83d \udc92 🙂"}]
    assert lenient(path) == (strict(path), {})


def test_a_parquet_text_that_is_no_text_is_refused_near_its_line(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    texts = pyarrow.array([b"fine"] * 300 + [b"it\x92s"]).cast(pyarrow.binary())
    broken = pyarrow.Array.from_buffers(pyarrow.string(), 301, texts.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"said": broken}), path)
    assert "p.parquet: a text in the 256 rows after line 256 is not UTF-8: " in mistake(strict, path)


# Long fields.


def test_a_long_csv_field_is_read_where_completions_are_and_the_process_limit_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"id,said\na,{'x' * 200_000}\nb,short\n")
    before = csv.field_size_limit()
    rows = read_rows(path, "rows", on_repair=lambda how: None)
    assert len(next(rows)[1]["said"]) == 200_000
    assert csv.field_size_limit() == before  # also while the file is open
    assert next(rows)[1]["said"] == "short"
    assert "field larger than field limit (131072)" in mistake(strict, path)
    assert csv.field_size_limit() == before


def test_a_quote_left_open_does_not_read_the_whole_file_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    line = f'a,"{"x" * 1000}"\n'
    path.write_text('id,said\na,"open\n' + line.replace('"', "") * (2 * LONGEST_FIELD // 1000))
    assert f"field larger than field limit ({LONGEST_FIELD})" in mistake(lenient, path)


# Memory.


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, suffix: str) -> None:
    few, many = (peak(numbered(tmp_path / f"{n}{suffix}", n)) for n in (1_000, 20_000))
    assert many < 1.2 * few + 100_000  # bytes


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_measure_of_memory_sees_a_reader_that_keeps_the_rows(tmp_path: Path, suffix: str) -> None:
    few, many = (peak(numbered(tmp_path / f"{n}{suffix}", n), list) for n in (1_000, 20_000))
    assert many > 10 * few


def numbered(path: Path, n: int) -> Path:
    rows = ({"id": f"row {i}", "said": f"number {i} " * 5} for i in range(n))
    match path.suffix:
        case ".jsonl":
            with path.open("w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["id", "said"])
                writer.writeheader()
                writer.writerows(rows)
        case _:
            table = pyarrow.Table.from_pylist(list(rows))  # of one row group, of small pages: these are read whole
            pyarrow.parquet.write_table(table, path, use_dictionary=False, data_page_size=1 << 14)
    return path


def peak(path: Path, consume: Callable = lambda rows: sum(1 for _ in rows)) -> int:
    """Return the most bytes that Python and Arrow held while the rows were read."""
    usual = pyarrow.default_memory_pool()
    counting = pyarrow.proxy_memory_pool(usual)
    pyarrow.set_memory_pool(counting)
    tracemalloc.start()
    try:
        consume(read_rows(path, "rows"))
        return tracemalloc.get_traced_memory()[1] + counting.max_memory()
    finally:
        tracemalloc.stop()
        pyarrow.set_memory_pool(usual)


def written(name: str, said: str) -> str:
    row = json.dumps({"id": "a", "said": said}, ensure_ascii=False)
    quoted = said.replace('"', '""')
    return {"p.jsonl": row + "\n", "p.csv": f'id,said\na,"{quoted}"\n', "p.json": f"[{row}]"}[name]
