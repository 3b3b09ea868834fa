"""Sizes of a model by its configuration, and speed and memory of a machine: measured, or of a data sheet."""

from __future__ import annotations

import copy
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from experiments.responses.batched_edits import MOST_LOGITS
from experiments.run.config import RunConfig
from extract.errors import UserError, in_one_line
from extract.keyed_file import KeyedFile, content_key
from extract.model.backends import decoder_layers
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Stream
from extract.model.loading import class_for, open_model
from extract.model.loading_options import best_device
from extract.progress import Reporter
from extract.shipped import cache_folder

LEAST_SECONDS = 0.1  # least duration of each measurement
LAYERS_S = 0.7  # seconds of the measured layers in a pass that reads prompts; deeper layers are extrapolated
LENGTHS, LEAST_LAYERS = (16, 8, 4), 2  # tokens of the prompts that are read: the most with which so many layers fit
STEPS = 5  # tokens that are decoded
NOISE = 1_000_003  # random weights, repeated: a prime, so that no two rows are alike
BUSY = 0.75  # processes a core has to run
MEMORY = 0.1  # share of the memory that the measured layers may take
NOT_SHAPE = ("_name_or_path", "transformers_version", "architectures")  # keys of a configuration

Seconds = tuple[float, float, float]  # see `measure_model`


# -- sizes of a model -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Footprint:
    """The sizes of a model that determine its cost."""

    parameters: int
    width: int  # bytes of a number
    n_layers: int
    d_model: int
    d_ff: int  # the widest layer of a block
    d_kv: int  # width of a token's keys at one layer, all heads
    vocabulary: int
    embedding: int = 0  # parameters that are looked up and in no product
    head: int = 0  # parameters that only a next-token distribution needs; 0 where it is not known

    @property
    def blocks(self) -> int:
        """Parameters that every token is multiplied with."""
        return self.parameters - self.embedding - self.head

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return self.parameters * self.width

    @property
    def cache(self) -> int:
        """Bytes of a token's keys and values at all layers (a sliding window would keep fewer of long texts)."""
        return 2 * self.n_layers * self.d_kv * self.width

    def memory(self, batch: int, longest: int, tokens: int) -> tuple[int, int, int]:
        """Return about the bytes of the weights, of a batch's keys and values, and of a pass's temporary values.

        `longest` is tokens of a prompt and its completion, `tokens` those of a batch that is read.
        """
        logits = 3 * 4 * max(batch * self.vocabulary, MOST_LOGITS)
        work = max(logits, tokens * (3 * self.d_ff + 6 * self.d_model) * self.width)
        return self.weights, batch * longest * self.cache, work


def footprint(shape: PretrainedConfig, width: int) -> Footprint:
    """Return a model's sizes from its configuration, by the bytes of a number; weights are made on the meta device."""
    with torch.device("meta"):
        model = class_for(shape).from_config(shape)
    text = shape.get_text_config()
    read, written = model.get_input_embeddings(), model.get_output_embeddings()
    heads = text.num_attention_heads
    d_head = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Footprint(
        parameters=sum(p.numel() for p in model.parameters()),
        width=width,
        n_layers=text.num_hidden_layers,
        d_model=text.hidden_size,
        d_ff=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        d_kv=(getattr(text, "num_key_value_heads", None) or heads) * d_head,
        vocabulary=text.vocab_size,
        embedding=0 if written is not None and read.weight is written.weight else read.weight.numel(),
        head=0 if written is None else written.weight.numel(),
    )


def gigabytes(n: int) -> str:
    """Return a number of bytes as text in GB or MB."""
    return f"{n / 1e9:.1f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


# -- the machine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """Peak values of a machine, of which a run reaches a share; or those that a model reaches."""

    name: str
    source: str  # of the values: measured, or a data sheet
    flops: float  # FLOP per second of matrix products
    bandwidth: float  # bytes per second, of the memory that holds the weights
    memory: int  # bytes of that memory
    launch: tuple[float, float]  # least seconds of a layer in any pass, however little it computes: low, high
    width: int  # bytes of a number in the model's default dtype
    device: str = "cpu"
    of_model: bool = False  # whether the speed is that of the model's own passes, and no peak

    def described(self) -> str:
        """Return the name with speed, bandwidth and their source."""
        figures = f"{self.flops / 1e12:.3g} TFLOP/s" + ("" if self.of_model else f", {self.bandwidth / 1e9:.3g} GB/s")
        return f"{self.name} ({figures}: {self.source})"


A100 = Machine("one A100 of 80 GB", "its data sheet, nothing measured", 312e12, 2.0e12, 80 * 10**9, (3e-4, 1.2e-3), 2)


def has_gpu(device: str) -> bool:
    """Return whether a model on the device that a configuration names runs on a GPU."""
    return (best_device() if device == "auto" else device).partition(":")[0] not in ("cpu", "mps")


def measure_device(device: str) -> Machine:
    """Measure a configuration's device, for `auto` a GPU if there is one; raises UserError if it is not there."""
    chosen = best_device() if device == "auto" else device
    try:
        at = torch.device(chosen)
        on_gpu = at.type == "cuda"
        kind = torch.bfloat16 if on_gpu else torch.float32
        size, n_bytes = (8192, 2**30) if on_gpu else (1024, 2**27)
        a, b = torch.ones(size, size, device=at, dtype=kind), torch.empty(n_bytes, device=at, dtype=torch.uint8)
    except (RuntimeError, AssertionError) as error:  # the latter if torch was built without CUDA
        raise UserError(f"model.device {device!r} cannot be used here: {in_one_line(error)}") from None
    finish = _finish(at)
    flops = 2 * size**3 / _seconds(lambda: a @ a, finish)
    bandwidth = 2 * n_bytes / _seconds(b.clone, finish)
    if not on_gpu:
        name = "an Apple chip" if at.type == "mps" else f"{os.cpu_count()} CPU cores"
        memory = int(psutil.virtual_memory().total)
        return Machine(name, "measured now", flops, bandwidth, memory, (1e-4, 6e-4), 4, chosen)
    count = torch.cuda.device_count() if device == "auto" else 1
    gpus = [torch.cuda.get_device_properties(i if device == "auto" else at) for i in range(count)]
    name = f"{count} x {gpus[0].name}" if count > 1 else str(gpus[0].name)
    memory = sum(int(gpu.total_memory) for gpu in gpus)
    return Machine(name, "measured now", flops, bandwidth, memory, A100.launch, 2, chosen)


def _finish(device: torch.device) -> Callable[[], None]:
    """Return what waits until a device has done its work."""
    return {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(device.type, lambda: None)


def _seconds(call: Callable[[], object], finish: Callable[[], None]) -> float:
    """Return the least duration of a call, in seconds; the first call, which may initialise, does not count."""
    call()
    finish()
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < LEAST_SECONDS:
        before = time.perf_counter()
        call()
        finish()
        best = min(best, time.perf_counter() - before)
    return best


# -- speed of a model --------------------------------------------------------------------------------------------------


def measured_speed(
    config: RunConfig,
    shape: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    size: Footprint,
    machine: Machine,
    reporter: Reporter,
    *,
    cut: bool = False,
) -> Machine:
    """Return the machine with the speed that a model of this shape reaches on it: the kept one, or measured now.

    No weights are read: a pass takes equally long whatever they are. A speed is kept for the shape, the dtype, the
    rows of a batch, the machine, its threads and the versions of torch and this package. A shape that cannot be
    measured leaves the machine as it is. One that was measured while the machine was busy is measured again once it is
    quiet.

    Where the run is `cut` to a time, a model whose weights are made smaller or spread is loaded to measure it.
    UserError: the weights of another one do not fit into memory.
    """
    figures = {key: value for key, value in shape.to_dict().items() if key not in NOT_SHAPE}
    rows, loading = config.generate.batch_size, config.model.loading
    if cut and (loading.quantization is not None or loading.max_memory is not None):
        model = open_model(ChatModel, config.model)
        return with_speed(machine, size, rows, measure_model(model, size.n_layers, rows, LENGTHS[0]))
    if cut and size.weights > machine.memory:
        raise UserError(
            f"the weights take {gigabytes(size.weights)}, and {machine.name} have {gigabytes(machine.memory)} of "
            "memory; choose a smaller model, or see the keys of model.loading"
        )
    products = torch.__version__, importlib.metadata.version("refusal-probes")  # whose they are
    here = (platform.node(), machine.name, torch.get_num_threads(), *products)
    figures_text = json.dumps(figures, sort_keys=True, default=str)
    key = content_key(figures_text, size.width, config.model.dtype, loading.attn_implementation, rows, *here)
    kept, load = _kept(key), _load()
    if kept is None or kept[1] > max(BUSY, 2 * load):
        reporter.say(
            "measuring once how fast this machine runs a model of this shape"
            + ("; it is busy, so once more when it is quiet" if load > BUSY else "")
        )
        try:
            kept = _measured(config, shape, tokenizer, size, machine), load
        except Exception as error:  # of any architecture's own code
            reporter.say(f"this shape cannot be measured ({in_one_line(error)}); the time is estimated roughly")
            return machine
        with suppress(UserError), closing(_file()) as file:
            file.put({key: (json.dumps(kept),)})
    return with_speed(machine, size, rows, kept[0])


def with_speed(machine: Machine, size: Footprint, rows: int, seconds: Seconds) -> Machine:
    """Return the machine with the speed that `measure_model` found for batches of so many rows."""
    a_token, waiting, besides = seconds
    flops = 2 * size.blocks / a_token
    waiting += max(0.0, besides - 2 * size.head * rows / flops)
    launch = waiting / size.n_layers
    source = "measured with passes of the model's shape"
    return replace(machine, source=source, flops=flops, bandwidth=np.inf, launch=(launch, launch), of_model=True)


def measure_model(model: ChatModel, n_layers: int, rows: int, length: int) -> Seconds:
    """Return the seconds of a token in all layers, of all layers in any pass, and of the rest of a decoding step.

    The layers are taken to last a T + b seconds in a pass of T tokens. Both are found from passes that read prompts of
    so many tokens, and passes that decode one token for each; the quickest count, since another process slows some of
    them down. `n_layers` are those of the whole model, of which the measured one may hold the first alone.
    """
    finish = _finish(model.device)
    entries, exits = list[float](), list[float]()  # when each pass enters the first layer and leaves the last

    def clock(times: list[float], stream: Stream) -> Stream:
        finish()
        times.append(time.perf_counter())
        return stream

    edits = (
        Edit("resid_pre", 0, lambda stream, _: clock(entries, stream)),
        Edit("resid_post", model.n_layers - 1, lambda stream, _: clock(exits, stream)),
    )
    batch = model.pad([range(1, length + 1)] * rows, "left")
    with model.editing(edits):
        model.generate(batch, 2, 2)  # the first pass may initialise
        model.generate(batch, STEPS, STEPS)
    lasting = [left - entered for entered, left in zip(entries, exits, strict=True)]
    between = [entered - left for entered, left in zip(entries[1:], exits, strict=False)]
    deeper = n_layers / model.n_layers
    reading, step = deeper * min(lasting[0], lasting[2]), deeper * min(lasting[3:])
    a_token = max(reading - step, 1e-3 * reading) / (rows * (length - 1))
    return a_token, max(0.0, step - a_token * rows), min(between[2:])


def _measured(
    config: RunConfig, shape: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, size: Footprint, machine: Machine
) -> Seconds:
    layer, rows = size.blocks / size.n_layers, config.generate.batch_size
    tokens = LAYERS_S * machine.flops / (2 * layer * rows)  # of each prompt, times layers
    length = next((n for n in LENGTHS if tokens / n >= LEAST_LAYERS), LENGTHS[-1])
    fitting = MEMORY * machine.memory / (layer * size.width)
    n_layers = int(min(size.n_layers, max(LEAST_LAYERS, min(tokens / length, fitting))))
    model = ChatModel(_first_layers(config, shape, n_layers, machine), tokenizer, config.model.name)
    return measure_model(model, size.n_layers, rows, length)


@torch.inference_mode()
def _first_layers(config: RunConfig, shape: PretrainedConfig, n_layers: int, machine: Machine) -> PreTrainedModel:
    """Return a model with the first layers of a shape and random weights."""
    usual = "float32" if machine.width == 4 else "bfloat16"
    dtype = getattr(torch, usual if config.model.dtype == "auto" else config.model.dtype)
    with torch.device("meta"):
        model = class_for(shape).from_config(
            copy.deepcopy(shape), dtype=dtype, attn_implementation=config.model.loading.attn_implementation
        )
    del decoder_layers(model)[n_layers:]
    model.config.get_text_config().num_hidden_layers = n_layers
    model.to_empty(device=machine.device)
    noise = torch.empty(NOISE, device=machine.device).uniform_(-0.02, 0.02)
    for parameter in model.parameters():
        for part in parameter.view(-1).split(NOISE):
            part.copy_(noise[: len(part)])
        noise = noise.roll(1)  # or a mixture's router would know the tokens that are alike its rows
    for buffer in model.buffers():
        buffer.fill_(1)
    return model


def _file() -> KeyedFile:
    path, purpose = cache_folder() / "speeds.sqlite", "the cache of measured speeds"
    return KeyedFile(path, "speeds", ["seconds"], purpose=purpose, remedy="delete it")


def _kept(key: str) -> tuple[Seconds, float] | None:
    """Return the kept speed, and the load under which it was measured."""
    with suppress(UserError), closing(_file()) as file:
        for (text,) in file.get([key]).values():
            (a_token, waiting, besides), load = json.loads(text)
            return (a_token, waiting, besides), load
    return None


def _load() -> float:
    """Return how many processes each core had to run in the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
