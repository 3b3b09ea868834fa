"""Checkpoints on disk: one that vLLM can load, and its fingerprint, to check dials where transformers loads none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.source import made_once, resolve
from extract.model.weights import cast_fingerprint_of


def checkpoint_of(model: ChatModel, adapted: bool) -> Path:
    """Return a directory of weights that vLLM can load; merged (`adapted`) or converted ones are written once."""
    source = Path(resolve(model.name))
    if not source.is_dir() and not adapted:
        source = Path(snapshot_download(model.name, revision=model.revision or None, local_files_only=True))
    if not adapted and (source / "config.json").is_file() and any(source.glob("*.safetensors")):
        return source

    def save(folder: Path) -> None:
        model.model.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)

    return made_once(f"checkpoint-{model.fingerprint()[:16]}", save)


def checkpoint_fingerprint(directory: Path) -> str:
    """Return the `cast_fingerprint` of the model that transformers would load; reads only sampled values."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return cast_fingerprint_of(_tensors(model, directory))


def _tensors(model: nn.Module, directory: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the state dictionary in the model's order; a tied weight is read where the file has it."""
    index, single = directory / "model.safetensors.index.json", directory / "model.safetensors"
    if not index.is_file() and not single.is_file():
        raise UserError(f"{directory} holds no model.safetensors: dials cannot be checked against its weights")
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values() if index.is_file() else [single.name]
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(directory / name, framework="pt")) for name in sorted(set(names))]
        where = {key: file for file in files for key in file.keys()}  # noqa: SIM118 - no mapping
        state = model.state_dict(keep_vars=True)
        same = {id(tensor): name for name, tensor in state.items() if name in where}
        for name, tensor in state.items():
            stored = name if name in where else same.get(id(tensor))
            if stored is None:
                raise UserError(f"{directory} has no tensor {name}: dials cannot be checked against its weights")
            yield name, where[stored].get_tensor(stored)
