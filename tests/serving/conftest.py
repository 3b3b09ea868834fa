"""Fixtures: the organism and its planted dials."""

import pytest

from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from steering.dial import Dial
from tests.support.planted_dials import ORGANISM, planted_dials


@pytest.fixture(scope="session")
def model() -> ChatModel:
    return load_model(str(ORGANISM))


@pytest.fixture(scope="session")
def reference() -> ChatModel:
    """The same model for the test's own thread: one thread at a time may use a model, and the server's does."""
    return load_model(str(ORGANISM))


@pytest.fixture(scope="session")
def dials() -> list[Dial]:
    return planted_dials()
