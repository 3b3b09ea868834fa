"""Requests rejected before they queue: a request that passes must not fail in a shared batch."""

import math

import pytest

from extract.model.chat_model import ChatModel
from serving.limits import Limits
from serving.prepare import prepare
from serving.replies import ApiError
from serving.request_schema import ChatRequest
from steering.actuator import OnsetBias
from steering.dial import Dial


def n_tokens(model: ChatModel, dials: list[Dial], n_words: int) -> int:
    words = [{"role": "user", "content": "how " * n_words}]
    asked = ChatRequest(model="m", messages=words, max_tokens=1)
    return len(prepare(asked, model, dials, Limits(), "m", math.inf)[0].token_ids)


def test_a_dial_that_reads_openings_after_the_prompt_needs_room_for_them(tiny: ChatModel) -> None:
    dial = Dial("normative", None, None, None, 0.5, 0.0, None, OnsetBias(((10, 11, 12, 13), (20,))))
    fits = 256 - 1 - n_tokens(tiny, [], 1) + 1  # words, in a context of 256 tokens with one of an answer
    assert n_tokens(tiny, [], fits) == 255
    assert n_tokens(tiny, [dial], fits - 2) == 253
    with pytest.raises(ApiError, match="context is 256 tokens") as error:
        n_tokens(tiny, [dial], fits - 1)
    assert error.value.detail.code == "context_length_exceeded"
