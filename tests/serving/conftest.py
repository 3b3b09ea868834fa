"""Fixtures: the organism, its planted dials, and a server of both."""

from collections.abc import Iterator

import openai
import pytest

from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from steering.dial import Dial
from tests.support.planted_dials import ORGANISM, planted_dials
from tests.support.running_server import Running, running


@pytest.fixture(scope="session")
def model(two_knobs: ChatModel) -> ChatModel:
    return two_knobs


@pytest.fixture(scope="session")
def reference() -> ChatModel:
    """The same model for the test's own thread: one thread at a time may use a model, and the server's does."""
    return load_model(str(ORGANISM))


@pytest.fixture(scope="session")
def dials() -> list[Dial]:
    return planted_dials()


@pytest.fixture(scope="module")
def served(model: ChatModel, dials: list[Dial]) -> Iterator[Running]:
    with running(model, dials) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Running) -> openai.OpenAI:
    return served.client()
