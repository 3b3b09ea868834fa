"""A run in Weights & Biases, offline: its figures are those of results.json, and no prompt and no answer is in it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refusal
from extract.errors import UserError
from scoring.rates import RATES

wandb = pytest.importorskip("wandb")
SMALL_RUN = Path(__file__).resolve().parents[1] / "fixtures" / "small_run"
BLOCK, HEADER = 32768, 7  # bytes of LevelDB's log format, of which a .wandb file is one


@pytest.fixture
def run(tmp_path: Path) -> refusal.Run:
    shutil.copytree(SMALL_RUN, tmp_path / "run")
    (tmp_path / "run" / "figures").mkdir()
    refusal.load_run(SMALL_RUN).plot().save(tmp_path / "run" / "figures" / "rates.svg")
    return refusal.load_run(tmp_path / "run")


def records(file: Path) -> Iterator[Any]:
    """Yield the records of an offline run's file."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = file.read_bytes(), HEADER, b""
    while at < len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + HEADER])
        record += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(record)
            record = b""


def test_it_holds_the_figures_of_the_run_and_none_of_its_prompts(cli, run: refusal.Run) -> None:
    code, out, err = cli("export", str(run.path), "--wandb", "--offline", "--project", "upgrades", "--json")
    assert (code, err) == (0, "")
    wandb.teardown()  # its service may write the file after the run has finished
    directory = Path(json.loads(out)["wandb"])
    assert directory.parent == run.path / "wandb"
    logged, summary = next(iter(directory.glob("*.wandb"))), {}
    for record in records(logged):
        if record.WhichOneof("record_type") == "run":
            assert (record.run.project, record.run.display_name) == ("upgrades", run.results.name)
        for item in record.summary.update:
            summary["/".join([item.key] if item.key else item.nested_key)] = json.loads(item.value_json)
    for state, rates in (("before", run.results.rates.before), ("with_dials", run.results.rates.after)):
        for name in RATES:
            held = [summary[f"{state}/{name}{end}"] for end in ("", "_low", "_high", "_n")]
            assert held == pytest.approx([*rates.of(name).limits(), rates.of(name).n])
    assert summary["verdict/one_or_two"] == run.results.dissociation.verdict
    assert summary["auroc/normative"] == run.results.sites["normative"].auroc
    assert next(directory.rglob("*rates*.html")).read_text().startswith("<svg")
    written = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    frame = run.completions
    assert b"double_dissociation" in written
    assert not [text for text in (*frame["text"], *frame["completion"]) if text.encode() in written]


def test_who_is_not_logged_in_gets_the_remedy(
    run: refusal.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match="log in with wandb login, or log offline"):
        refusal.log_run(run)
