"""A local chat server that answers as an OpenAI-compatible endpoint does."""

from collections.abc import Iterator

import pytest

from tests.support.chat_server import ChatServer, running


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with running() as chat:
        yield chat
