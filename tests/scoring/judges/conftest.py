"""The rule judge, and a local chat server that answers as an OpenAI-compatible endpoint does."""

from collections.abc import Iterator

import pytest

from scoring.judges.rules import RuleJudge
from tests.support.chat_server import ChatServer, running


@pytest.fixture(scope="module")
def judge() -> RuleJudge:
    return RuleJudge()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with running() as chat:
        yield chat
