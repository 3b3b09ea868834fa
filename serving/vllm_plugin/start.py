"""Starts vLLM's engine: the memory of its cache, and why it does not start, in one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from extract.errors import in_one_line
from serving.vllm_plugin.request import Fields

LEVEL = "VLLM_LOGGING_LEVEL"
TOKENS_PER_ANSWER = 4096  # of prompt and answer, that the cache holds for every answer of a batch
SIZE = ("gpu_memory_utilization", "kv_cache_memory_bytes")  # arguments that set the cache's size
SETTINGS = {  # words of vLLM's messages: what to set
    "requested memory for kv": "lower --max-batch, --engine-arg max_model_len or --engine-arg kv_cache_memory_bytes",
    "cache blocks": "raise --engine-arg gpu_memory_utilization or --engine-arg kv_cache_memory_bytes",
    "memory utilization": "set --engine-arg gpu_memory_utilization=0.5, or end other processes that use this memory",
    "max seq len": "set --engine-arg max_model_len=4096",
}
_ERROR = re.compile(r"(?:^|[\s\]])[\w.]*(?:Error|Exception): (.+)")
_OPTION = re.compile(r"--([a-z][a-z-]+)[ =]?(\w*)")
_END = "\x1f\n"  # of what is held back


def engine(checkpoint: Path, given: Fields) -> Any:
    """Return vLLM's engine of a checkpoint."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    config = AsyncEngineArgs(model=str(checkpoint), **given).create_engine_config()
    if config.device_config.device_type == "cpu" and not given.keys() & set(SIZE):
        config.cache_config.kv_cache_memory_bytes = config.cache_config.kv_cache_memory_bytes or _cache_bytes(config)
    return AsyncLLM.from_vllm_config(config, disable_log_stats=True)


def _cache_bytes(config: Any) -> int:
    """Return the bytes of keys and values of a batch, and at least of one answer at the model's whole context.

    On a CPU vLLM would take a share of all memory, whatever the model needs.
    """
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    context, block = model.max_model_len, cache.block_size or 128
    answers = config.scheduler_config.max_num_seqs
    tokens = max(context, answers * min(context, TOKENS_PER_ANSWER)) + (answers + 2) * block  # whole blocks
    width = model.get_num_kv_heads(parallel) * model.get_head_size() * model.dtype.itemsize
    return int(2 * tokens * width * model.get_num_layers(parallel))


@contextmanager
def held_back() -> Iterator[list[str]]:
    """Yield the lines that this process, and those that it starts in the block, print in it: the terminal gets none.

    What the processes print after the block goes to the terminal's standard error. With a level in VLLM_LOGGING_LEVEL
    all does.
    """
    lines: list[str] = []
    verbose, held, terminal = LEVEL in os.environ, True, [os.dup(1), os.dup(2)]
    os.environ.setdefault(LEVEL, "ERROR")
    reading, writing = os.pipe()

    def read() -> None:
        nonlocal held
        with os.fdopen(reading, encoding="utf-8", errors="replace", newline="\n") as printed:
            for line in printed:
                if line.endswith(_END):
                    held = False
                    continue
                if held:
                    lines.append(line.rstrip())
                if verbose or not held:
                    os.write(terminal[1], line.encode())

    reader = Thread(target=read, name="output of vLLM", daemon=True)
    reader.start()
    _redirect([writing, writing])
    try:
        yield lines
    except BaseException:
        _redirect(terminal)
        os.close(writing)
        reader.join(5)  # until the processes have ended
        raise
    os.write(writing, _END.encode())
    _redirect(terminal)
    os.close(writing)


def _redirect(descriptors: list[int]) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for standard, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, standard)


def why(error: Exception, printed: list[str]) -> str:
    """Return why vLLM does not start, by the first error that its processes printed, and what to set."""
    said = [found[1] for line in printed if (found := _ERROR.search(line))] if "root cause" in str(error) else []
    said += [f"{' '.join(map(str, one['loc']))} {one['msg'].removeprefix('Value error, ')}" for one in _invalid(error)]
    cause = said[0].strip() if said else str(error)
    option = max(_OPTION.findall(cause), key=lambda one: len(one[1]), default=None)
    setting = f"set --engine-arg {option[0].replace('-', '_')}={option[1] or 'VALUE'}" if option else None
    setting = next((remedy for words, remedy in SETTINGS.items() if words in cause), setting)
    line = in_one_line(ValueError(cause.partition(". ")[0]))
    return line + (f"; {setting}" if setting else "")


def _invalid(error: Exception) -> Any:
    """Return the errors of pydantic, whose first line says only how many there are."""
    return error.errors() if hasattr(error, "errors") else ()
