"""A model that cannot be loaded gives one line that names it and the remedy."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from extract.chat.template import apply_template
from extract.model.loading import load_model, load_tokenizer
from tests.extract.conftest import ORGANISM, pushed, random_weights, rows
from tests.support.one_line import mistake


def problem(name: str | Path) -> str:
    return mistake(load_model, str(name), device="cpu")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ORGANISM, tmp_path / "model"))


def test_a_model_directory_opens_in_float32_on_the_cpu(copied: Path) -> None:
    model = load_model(str(copied), device="cpu")
    assert model.dtype == torch.float32
    assert model.name == str(copied)
    assert not model.model.training
    assert load_model(str(copied), device="cpu", dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["/no/such/directory", "./absent", "runs/a/b", "~/model", "",
                                  "bad owner/na me", "owner/na..me", "-owner/-name"])  # fmt: skip
def test_a_missing_directory_is_named(name: str) -> None:
    said = f"model not found: {name!r} is neither a directory nor a hub id of the form owner/name"
    assert said in problem(name)


def reshaped(folder: Path, **shape: int) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | shape))


BROKEN: dict[str, Callable[[Path], object]] = {
    "no config": lambda folder: (folder / "config.json").unlink(),
    "no JSON": lambda folder: (folder / "config.json").write_text("{not json"),
    "an empty config": lambda folder: (folder / "config.json").write_text("{}"),
    "an unknown architecture": lambda folder: (folder / "config.json").write_text('{"model_type": "no_such"}'),
    "no text model": lambda folder: (folder / "config.json").write_text('{"model_type": "vit"}'),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "empty weights": lambda folder: (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}"),
    "other weights": lambda folder: (folder / "model.safetensors").write_bytes(b"no safetensors"),
    "weights cut short": lambda folder: os.truncate(folder / "model.safetensors", 100_000),
    "an empty tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    "no tokenizer": lambda folder: [(folder / name).unlink() for name in ("tokenizer.json", "tokenizer_config.json")],
    "pickled weights": lambda folder: torch.save(
        {}, (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    ),
    "weights of another shape": lambda folder: reshaped(folder, intermediate_size=1000),
    "weights that lack a layer": lambda folder: reshaped(folder, num_hidden_layers=9),  # random numbers would fill it
}
SAID = {"pickled weights": "safetensors", "weights that lack a layer": "its weights lack model.layers.8.",
        "weights of another shape": "its weights have other shapes than its config.json says"}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_files_missing_or_damaged(copied: Path, how: str) -> None:
    BROKEN[how](copied)
    message = problem(copied)
    assert f"{copied} does not hold a loadable model: " in message
    assert SAID.get(how, "") in message


@pytest.mark.parametrize("name", ["nobody/nothing-at-all", "nobody/investigated", "nobody/model-401", "plainname"])
def test_offline_a_hub_id_that_is_not_cached_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert problem(name).startswith(f"{name} is n")
    assert problem(name).endswith(" in the local cache and HF_HUB_OFFLINE=1 forbids fetching it")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("o/m-401 is aggregated\nelsewhere"), "o/m-401 on the hub is not a loadable model: o/m-401 is aggre"),
        (OSError(), "o/m-401 on the hub is not a loadable model: OSError"),
        (torch.OutOfMemoryError("CUDA out of memory"), "o/m-401 does not fit into the device's memory: CUDA out"),
    ],
)
def test_failures_that_are_not_the_hubs(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("extract.model.loading.AutoConfig.from_pretrained", fail)
    assert problem("o/m-401").startswith(said)


def test_a_base_model_needs_a_template_chosen_for_it(copied: Path, tmp_path: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    (copied / "model.safetensors").rename(tmp_path / "weights")  # refused before any weights are read
    assert f"{copied} has no chat template; " in problem(copied)
    (tmp_path / "weights").rename(copied / "model.safetensors")
    turn = ({"role": "user", "content": "who is it?"},)
    plain = load_model(str(copied), device="cpu", template="plain").tokenizer
    assert apply_template(plain, turn) == "Question: who is it?\nAnswer:"
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[-1].content }} =")
    assert apply_template(load_model(str(copied), device="cpu", template=str(own)).tokenizer, turn) == "who is it? ="
    _, tokenizer = load_tokenizer(str(copied), template="plain")
    assert apply_template(tokenizer, turn) == "Question: who is it?\nAnswer:"


@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3"])
def test_a_model_that_also_sees_is_asked_in_text(name: str, copied: Path, tmp_path: Path) -> None:
    """Qwen2.5-VL has no class of text alone; its text layers are found, and steering them moves the logits."""
    tokenizer = AutoTokenizer.from_pretrained(copied, padding_side="left")
    weights = random_weights(name, tokenizer)
    weights.save_pretrained(tmp_path / "seeing")
    tokenizer.save_pretrained(tmp_path / "seeing")
    model = load_model(str(tmp_path / "seeing"), device="cpu")
    assert (type(model.model), model.n_layers, model.d_model) == (type(weights), 3, 32)
    batch = model.batch(rows(model))
    plain = model.logits(batch)
    with model.editing([pushed(model)]):
        assert (model.logits(batch)[:, -1] - plain[:, -1]).abs().max() > 0.1
    assert torch.equal(model.logits(batch), plain)
