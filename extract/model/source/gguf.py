"""GGUF files (llama.cpp's format), dequantised once into the cache as a directory that transformers reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from extract.errors import UserError, in_one_line
from extract.model.quiet import quiet_libraries
from extract.model.source.cache import made_once
from extract.progress import Advance, Reporter

SUFFIX = ".gguf"
MAGIC = b"GGUF"


def dequantised(path: Path, reporter: Reporter) -> Path:
    """Return the directory of a GGUF file's model in float32, with its tokenizer and chat template.

    The file's digest names the directory, so another file of the same name is another model.

    Raises:
        UserError: the extra `models` is not installed, or the file is cut short, of an architecture that transformers
            does not read, or without a tokenizer.
    """
    if find_spec("gguf") is None:
        raise UserError(f"{path}: GGUF files need the extra `models`: pip install 'refusal-probes[models]'")
    state = path.stat()
    digest = _digest(path, state.st_size, state.st_mtime_ns)
    return made_once(f"gguf-{digest[:16]}", lambda folder: _dequantise(path, folder, reporter))


@lru_cache
def _digest(path: Path, size: int, changed_ns: int) -> str:
    """Return the SHA-256 of a file; size and time of change tell when it has to be read again."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{path} is not a GGUF file")
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dequantise(path: Path, folder: Path, reporter: Reporter) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    quiet_libraries()
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    reporter.say(f"dequantising {path.name} into the cache, once")
    try:
        reader = _reader(path)
        with reporter.task("dequantising", len(reader.tensors)) as advance, _used(reader, advance):
            tokenizer = AutoTokenizer.from_pretrained(**where)
            model = AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
            )
    except Exception as error:  # gguf and transformers raise classes of their own
        raise UserError(f"{path} is not a GGUF model that can be read: {in_one_line(error)}") from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _reader(path: Path) -> Any:
    """Read a file's metadata; through a plain array, which takes a quarter of the time of a memory-mapped one."""
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value.view(np.ndarray) if name == "data" else value)

    return Reader(path)


@contextmanager
def _used(reader: Any, advance: Advance) -> Iterator[None]:
    """Make transformers use this reader during the block, and report each tensor in place of its own bar.

    It would read the file three times, and each time a large vocabulary takes several seconds.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as loader

    def tensors(given: Sequence[Any], **_: Any) -> Iterator[Any]:
        for tensor in given:
            yield tensor
            advance(1)

    replaced = ((gguf, "GGUFReader", lambda _: reader), (loader, "tqdm", tensors))
    before = [getattr(module, name) for module, name, _ in replaced]
    for module, name, used in replaced:
        setattr(module, name, used)
    try:
        yield
    finally:
        for (module, name, _), kept in zip(replaced, before, strict=True):
            setattr(module, name, kept)
