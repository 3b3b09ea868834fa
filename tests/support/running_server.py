"""A server that runs in a thread of this process."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import openai
from torch import Tensor

from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from serving.app import Address, Server, create_app
from serving.engine import Engine
from serving.exchange import ServedModel
from serving.limits import Limits
from steering.dial import Dial


@dataclass
class Running:
    url: str
    engine: Engine

    def client(self, key: str = "any") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)


@contextmanager
def running(
    model: ChatModel,
    dials: list[Dial],
    limits: Limits | None = None,
    api_key: str | None = None,
    max_batch: int = 16,
    max_queue: int = 64,
    host: str = "127.0.0.1",
    *,
    ui: bool = False,
) -> Iterator[Running]:
    """Serve on a free port until the block ends."""
    engine = Engine(model, dials, max_batch, max_queue)
    address = Address(host, 0)
    app = create_app(engine, ServedModel("two-knobs", 1, "f" * 12), limits or Limits(), api_key, address.allowed_hosts,
                     ui=ui)  # fmt: skip
    with address.listen() as listening:
        serving = Server(app, engine)
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until(lambda: serving.started)
        try:
            yield Running(f"http://{address.url_host}:{listening.getsockname()[1]}", engine)
        finally:
            serving.should_exit = True
            thread.join(timeout=30)
    assert not thread.is_alive()


def slowed(model: ChatModel, seconds: float) -> Edit:
    def wait(stream: Tensor, _pass: Pass) -> Tensor:
        time.sleep(seconds)
        return stream

    return Edit("resid_pre", 0, wait)


@contextmanager
def held(model: ChatModel, *, after_prompts: bool = False) -> Iterator[Callable[[], None]]:
    """Block every forward pass, or those after the prompts are read; yields a function that unblocks."""
    go = threading.Event()

    def wait(stream: Tensor, pass_: Pass) -> Tensor:
        assert (after_prompts and pass_.is_prefill) or go.wait(20)
        return stream

    with model.editing([Edit("resid_pre", 0, wait)]):
        yield go.set
        go.set()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until it holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
