"""`refusal models`: what ships is listed with its size, and what the hub's cache holds."""

import json
from pathlib import Path

from extract.shipped import ROOT
from refusal.cli.models import hub_models


def test_what_ships_is_listed(cli) -> None:
    code, out, err = cli("models", "--json")
    assert code == 0, err
    found = {one["target"]: one for one in json.loads(out)}
    zoo = {f"organisms/zoo/{path.parent.name}" for path in (ROOT / "organisms/zoo").glob("*/truth.json")}
    assert {target for target, one in found.items() if one["kind"] == "organism"} == zoo
    assert (
        found["organisms/zoo/two-knobs"]["size"] == (ROOT / "organisms/zoo/two-knobs/model.safetensors").stat().st_size
    )
    assert found["organisms/taught/smollm2-natural"]["kind"] == "taught"
    llama = found["configs/models/llama-3.1-8b-instruct.yaml"]
    assert llama["size"] == 16_000_000_000
    assert "licence" in llama["needs"]
    assert "licence" not in found["configs/models/qwen3-4b.yaml"]["needs"]
    assert "organisms/zoo/two-knobs" in cli("models")[1]


def test_models_in_the_cache_are_found_without_a_server(tmp_path: Path) -> None:
    def cached(name: str, *files: str) -> None:
        snapshot = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / "0"
        snapshot.mkdir(parents=True)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("0")
        for file in files:
            (snapshot / file).write_bytes(b"12345")

    cached("owner/chat", "config.json", "model.safetensors")
    cached("owner/tokenizer-only", "config.json", "tokenizer.json")
    assert hub_models(tmp_path) == {"owner/chat": 10}
    assert hub_models(tmp_path / "none") == {}
