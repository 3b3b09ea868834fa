"""An engine for our own server that decodes in vLLM: rows join and leave at any step, each with its own thresholds."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from huggingface_hub import snapshot_download

from extract.backoff import empty_cache
from extract.errors import UserError, in_one_line
from extract.model.chat_model import ChatModel
from extract.model.source import made_once, resolve
from serving.choice import Choice
from serving.engine import QueueFullError
from serving.vllm_plugin.bank import DialBank
from serving.vllm_plugin.plugin import ALARMS, SERVER, SETTING, check_version
from serving.vllm_plugin.request import DialRequest, Fields, ask, new_key, tokens_read
from steering.dial import Dial

LOG = logging.getLogger("refusal.serve")
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


class VllmEngine:
    """Decodes choices in vLLM, which loads `checkpoint` itself, as `serving.engine.Engine`; drops the model."""

    reads_tokens = False  # the readings of every token take a pass of our own

    def __init__(
        self,
        model: ChatModel,
        dials: Sequence[Dial],
        checkpoint: Path,
        dials_path: Path | None,  # for the process that computes
        alarms: float | None,  # likewise, a share of false alarms
        max_batch: int,
        max_queue: int,
        arguments: Fields,
    ) -> None:
        self.model: ChatModel = model
        self.max_queue, self._max_batch = max_queue, max_batch
        self.dials: list[Dial] = list(dials)
        check_version()
        if dials:
            DialBank(dials, model.n_layers, model.d_model, n_slots=2, n_tokens=2)  # says here what does not fit
        model.model.to("meta")  # vLLM loads the weights itself
        empty_cache()
        self._running: dict[int, Future[None]] = {}
        self._begun: set[int] = set()
        self._lock, self._closing = Lock(), False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        os.environ[SERVER] = str(os.getpid())
        if dials_path is not None:
            os.environ[SETTING] = str(dials_path.absolute())
        os.environ.pop(ALARMS, None)
        if alarms is not None:
            os.environ[ALARMS] = str(alarms)
        given = {"dtype": str(model.dtype).removeprefix("torch."), "max_num_seqs": max_batch} | dict(arguments)
        printed: list[str] = []
        try:
            with held_back() as printed:
                self._llm = self._wait(_open(checkpoint, given))
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"vLLM does not start: {why(error, printed)}") from None

    @property
    def waiting(self) -> int:
        return max(0, len(self._running) - self.decoding)

    @property
    def decoding(self) -> int:
        return len(self._begun)

    def start(self) -> None:
        """Do nothing: vLLM has started."""

    def submit(self, choices: Sequence[Choice]) -> None:
        """Pass choices on to vLLM, all or none; QueueFullError if they do not fit."""
        with self._lock:
            if self._closing or len(self._running) + len(choices) > self.max_queue + self._max_batch:
                raise QueueFullError
            for choice in choices:
                self._running[id(choice)] = asyncio.run_coroutine_threadsafe(self._answer(choice), self._loop)

    def withdraw(self, choices: Sequence[Choice]) -> None:
        for choice in choices:
            choice.abandon()
            if (running := self._running.get(id(choice))) is not None:
                running.cancel()

    def close(self) -> None:
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for running in list(self._running.values()):
            running.cancel()
        while self._running:
            await asyncio.sleep(0.01)
        self._llm.shutdown()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:  # of vLLM
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _answer(self, choice: Choice) -> None:
        try:
            choice.begin(self.model)
            choice.held = any(dial.answer_limit is not None for dial in self.dials)  # until all its tokens are read
            await self._decode(choice)
            choice.fail("decoding ended early", transient=False)  # unless it has ended, as it must have
        except asyncio.CancelledError:
            choice.fail("the server is stopping")  # unless it was abandoned
        except Exception:  # any error: the server goes on, and the choice fails
            LOG.exception("decoding failed")
            choice.fail("decoding failed; see the server's log", transient=False)
        finally:
            self._running.pop(id(choice), None)
            self._begun.discard(id(choice))

    async def _decode(self, choice: Choice) -> None:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        settings, key = choice.settings, new_key()
        asked = DialRequest(key=key, thresholds=settings.thresholds, read_at=tokens_read(self.dials, choice.row))
        params = SamplingParams(
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=settings.seed % 2**63,
            max_tokens=settings.max_new_tokens,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args=asked.extra_args() if self.dials else None,
        )
        n_read = -1
        answered = self._llm.generate(tokens_input(list(choice.row.token_ids)), params, key)
        try:
            async for out in answered:
                if not choice.emitted:
                    self._begun.add(id(choice))
                    choice.read(await ask(self._llm, key, self.dials, settings.thresholds) if self.dials else {})
                for token in out.outputs[0].token_ids:
                    n_read += not choice.over  # tokens before this one
                    choice.push(token)
                if choice.is_held:
                    choice.complete(readings=await ask(self._llm, key, self.dials, settings.thresholds, n_read))
                if choice.over:
                    return
        finally:
            await answered.aclose()


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


async def _open(checkpoint: Path, given: Fields) -> Any:
    """Return vLLM's engine of a checkpoint, in the loop that it then runs in."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    config = AsyncEngineArgs(model=str(checkpoint), **given).create_engine_config()
    if config.device_config.device_type == "cpu" and not given.keys() & set(SIZE):
        config.cache_config.kv_cache_memory_bytes = config.cache_config.kv_cache_memory_bytes or _cache_bytes(config)
    return AsyncLLM.from_vllm_config(config, disable_log_stats=True)


def _cache_bytes(config: Any) -> int:
    """Return the bytes of keys and values of a batch; on a CPU vLLM would take a share of all memory."""
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
    said = [match[1] for line in printed if (match := _ERROR.search(line))] if "root cause" in str(error) else []
    invalid: Any = error.errors() if hasattr(error, "errors") else ()  # of pydantic: the first line says how many
    said += [f"{' '.join(map(str, one['loc']))} {one['msg'].removeprefix('Value error, ')}" for one in invalid]
    cause = said[0].strip() if said else str(error)
    option = max(_OPTION.findall(cause), key=lambda one: len(one[1]), default=None)
    setting = f"set --engine-arg {option[0].replace('-', '_')}={option[1] or 'VALUE'}" if option else None
    setting = next((remedy for words, remedy in SETTINGS.items() if words in cause), setting)
    line = in_one_line(ValueError(cause.partition(". ")[0]))
    return line + (f"; {setting}" if setting else "")
