"""`refusal store info`, `verify` and `export` as their user meets them."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.extraction import extract
from extract.model.loading import load_model
from extract.prompts.prompt import load_prompts
from extract.shipped import ROOT
from tests.support.one_line import one_line

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "activations.h5"
    model, prompts = load_model(str(ORGANISM)), load_prompts(ORGANISM / "prompts.jsonl")[:7]
    extract(model, prompts, [render(model.tokenizer, p) for p in prompts], path, CaptureSpec(rows_per_shard=3))
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.parent, tmp_path / "run")) / made.name


def test_info_says_digest_shards_and_bytes_and_verify_that_a_store_is_whole(cli, store: Path) -> None:
    code, out, _ = cli("store", "info", str(store), "--json")
    record = json.loads(out)
    assert code == 0
    assert record["shards"] == 3
    assert record["bytes"] == sum(file.stat().st_size for file in store.parent.rglob("*.h5"))
    assert len(record["digest"]) == 64
    assert record["shape"][2] == 7
    code, out, _ = cli("store", "info", str(store))
    assert record["digest"] in out
    code, out, err = cli("store", "verify", str(store))
    assert code == 0
    assert len(out.splitlines()) == 1
    assert out.startswith(f"{store} is intact: 7 prompts, 3 shards, ")
    assert "verifying activations.h5" in err  # the bar
    code, out, _ = cli("store", "verify", str(store), "--json")
    record = json.loads(out)
    assert (code, record["ok"], record["findings"], record["prompts"]) == (0, True, [], 7)


def test_verify_lists_every_fault_and_fails(cli, store: Path) -> None:
    files = sorted(store.parent.rglob("0*.h5"))
    files[0].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-10])
    code, out, err = cli("store", "verify", str(store))
    assert code == 1
    assert "00000-of-00003.h5 is missing" in out.splitlines()[0]
    assert "00002-of-00003.h5 is not a readable HDF5 file (cut short?)" in out.splitlines()[1]
    assert f"refusal: {store} has 2 faults" in err
    code, out, _ = cli("store", "verify", str(store), "--json")
    assert (code, json.loads(out)["ok"], len(json.loads(out)["findings"])) == (1, False, 2)


def test_verify_compares_with_a_models_weights(cli, store: Path, tmp_path: Path) -> None:
    assert cli("store", "verify", str(store), "--model", str(ORGANISM))[0] == 0
    other = Path(shutil.copytree(ORGANISM, tmp_path / "other"))
    weights = load_file(other / "model.safetensors")
    name = next(iter(weights))
    save_file(weights | {name: weights[name] * 1.5}, other / "model.safetensors", {"format": "pt"})
    code, out, _ = cli("store", "verify", str(store), "--model", str(other))
    assert code == 1
    assert out.startswith("it was made with weights of fingerprint ")


def test_export_writes_one_file_that_is_as_good(cli, store: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat.h5"
    code, out, err = cli("store", "export", str(store), "--to", str(flat))
    assert (code, out) == (0, f"{flat}: {flat.stat().st_size / 1e6:.1f} MB\n")
    assert "exporting activations.h5" in err
    shutil.rmtree(store.parent)
    assert cli("store", "verify", str(flat))[0] == 0
    assert json.loads(cli("store", "info", str(flat), "--json")[1])["shards"] == 0


@pytest.mark.parametrize("command", ["info", "verify", "export"])
def test_what_is_no_store_is_one_line_that_advises_no_deletion(cli, tmp_path: Path, command: str) -> None:
    page, more = tmp_path / "report.html", ("--to", "flat.h5") if command == "export" else ()
    page.write_text("<p>a report</p>" * 100)
    missing = one_line(cli("store", command, "no.h5", *more))
    assert missing == "store not found: no.h5; make it with: refusal extract CONFIG"
    other = one_line(cli("store", command, str(page), *more))
    assert other == f"{page} is no HDF5 store; stores are made by: refusal extract CONFIG --out DIR"


def test_mistakes_are_one_line(cli, store: Path) -> None:
    for arguments, said in (
        (("export", str(store), "--to", str(store)), "exists already; choose another name"),
        (("verify", str(store), "--model", "./nowhere"), "model not found"),
        (("verify", str(store), "--dtype", "int4"), "--dtype is 'int4'; expected one of auto"),
    ):
        one_line(cli("store", *arguments), said)
