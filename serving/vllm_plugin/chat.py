"""Both thresholds in vLLM's own OpenAI server, and each choice's readings in its replies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from serving.replies import readings
from serving.vllm_plugin.reading import ask
from serving.vllm_plugin.request import Fields, extra_args, new_key, thresholds_of
from steering.dial import Dial

ASKED = "refusal_dials_asked"  # an attribute of vLLM's request: its key and thresholds
EVENT, DONE = "data: ", "data: [DONE]"


def patch_chat(dials: Sequence[Dial]) -> None:
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
    _tell_whole(OpenAIServingChat, dials)
    _tell_stream(OpenAIServingChat, dials)


def _take_thresholds(request: Any, dials: Sequence[Dial]) -> None:
    plain = request.to_sampling_params

    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        thresholds = thresholds_of(self.model_extra or {}, dials)
        params = plain(self, *args, **kwargs)
        if thresholds is not None:
            key = new_key()
            params.extra_args = {**(params.extra_args or {}), **extra_args(key, thresholds, None)}
            setattr(self, ASKED, (key, thresholds))
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


async def _dials(server: Any, request: Any, dials: Sequence[Dial]) -> Fields | None:
    if (asked := getattr(request, ASKED, None)) is None:
        return None
    key, thresholds = asked
    found = readings(await ask(server.engine_client, key, dials, thresholds))
    return {kind: one.model_dump() for kind, one in found.items()}


def _tell_whole(server: Any, dials: Sequence[Dial]) -> None:
    plain = server.chat_completion_full_generator

    async def chat_completion_full_generator(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        response = await plain(self, request, *args, **kwargs)
        if hasattr(response, "choices") and (read := await _dials(self, request, dials)) is not None:
            for choice in response.choices:
                choice.dials = read
        return response

    server.chat_completion_full_generator = chat_completion_full_generator


def _tell_stream(server: Any, dials: Sequence[Dial]) -> None:
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
                    read = read or await _dials(self, request, dials)
                    choice["dials"] = read
            yield f"{EVENT}{json.dumps(chunk)}\n\n"

    server.chat_completion_stream_generator = chat_completion_stream_generator
