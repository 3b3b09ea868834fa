"""The engine: waiting choices are decoded together, each with the same result as alone; waiting is bounded."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from torch import Tensor

from extract.chat.render import render
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from extract.prompts.prompt import Prompt
from serving.choice import Choice, DecodingSettings, Event, Failed, Finished, PromptRead, StopSequences, TextPiece
from serving.engine import Engine, QueueFullError
from serving.limits import RenderQueue, until_disconnect
from serving.replies import ApiError
from steering.conversation import generate_once
from steering.dial import Dial, Threshold
from tests.support.planted_dials import BENIGN, STRIKE, UNKNOWN
from tests.support.running_server import held, slowed, until

TEXTS = (BENIGN, STRIKE, UNKNOWN, "who is anna novak?")
OFF = {"normative": math.nan, "epistemic": math.nan}


class RecordedChoice:
    def __init__(self, model: ChatModel, text: str, **given: object) -> None:
        row = render(model.tokenizer, Prompt("x", ({"role": "user", "content": text},), "benign", "answer"))
        settings = {
            "max_new_tokens": 24, "temperature": 0.0, "top_p": 1.0, "seed": 1, "stops": (), "thresholds": {},
            "deadline": math.inf, "streamed": False,
        } | given  # fmt: skip
        asked = dict.fromkeys(OFF, 0.5) | settings["thresholds"]
        settings["thresholds"] = {kind: Threshold(None if math.isnan(tau) else tau) for kind, tau in asked.items()}
        self.events: list[Event] = []
        self.choice = Choice(row, DecodingSettings(**settings), self.events.append)

    @property
    def done(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Finished | Failed)

    @property
    def text(self) -> str:
        assert isinstance(self.events[-1], Finished), self.events
        return self.events[-1].text


@contextmanager
def working(model: ChatModel, dials: list[Dial], max_batch: int = 16, max_queue: int = 64) -> Iterator[Engine]:
    engine = Engine(model, dials, max_batch, max_queue)
    engine.start()
    yield engine
    engine.close()


def decoded(engine: Engine, recorded: list[RecordedChoice]) -> list[RecordedChoice]:
    engine.submit([one.choice for one in recorded])
    until(lambda: all(one.done for one in recorded))
    return recorded


@contextmanager
def counted(model: ChatModel) -> Iterator[list[int]]:
    sizes: list[int] = []

    def look(stream: Tensor, pass_: Pass) -> Tensor:
        sizes.extend([len(stream)] if pass_.is_prefill else [])
        return stream

    with model.editing([Edit("resid_pre", 0, look)]):
        yield sizes


def failing(
    model: ChatModel, where: Callable[[Tensor, Pass], object], error: Exception
) -> AbstractContextManager[ChatModel]:
    def fail(stream: Tensor, pass_: Pass) -> Tensor:
        if where(stream, pass_):
            raise error
        return stream

    return model.editing([Edit("resid_post", 0, fail)])


def test_waiting_choices_form_one_batch_with_a_threshold_per_row(model: ChatModel, dials: list[Dial]) -> None:
    asked = [{"normative": 0.0}, {"normative": 1.0}, {"epistemic": 0.0}, {"epistemic": 1.0, "normative": 1.0}, {}, OFF]
    with counted(model) as batches, working(model, dials) as engine:
        found = decoded(engine, [RecordedChoice(model, UNKNOWN, thresholds=thresholds) for thresholds in asked])
    assert batches == [6]
    texts = [one.text for one in found]
    assert texts[:5] == [generate_once(model, [UNKNOWN], dials, own, 24)[0].completion for own in asked[:5]]
    assert texts[5] == generate_once(model, [UNKNOWN], [], {}, 24)[0].completion
    assert len(set(texts)) > 2
    for one, thresholds in zip(found, asked, strict=True):
        read = one.events[0]
        assert isinstance(read, PromptRead)
        for kind, reading in read.readings.items():
            own = thresholds.get(kind, 0.5)
            off = reading.threshold is None and reading.gate == "leave"
            assert off if math.isnan(own) else reading.threshold == own


def test_a_row_ends_at_its_own_limit_or_stop_sequence(model: ChatModel, dials: list[Dial]) -> None:
    with working(model, dials) as engine:
        found = decoded(engine, [RecordedChoice(model, BENIGN, max_new_tokens=n) for n in (1, 3, 24)]
                        + [RecordedChoice(model, BENIGN, stops=(" the", "with"), streamed=True)])  # fmt: skip
    ends = [one.events[-1] for one in found]
    whole = ends[2].text
    assert [(end.finish, end.n_tokens) for end in ends[:2]] == [("length", 1), ("length", 3)]
    assert ends[2].finish == ends[3].finish == "stop"
    assert whole.startswith(ends[1].text)
    assert len(ends[0].text) < len(ends[1].text) < len(whole)
    assert ends[3].text == whole[: whole.index("with")]
    assert "".join(event.text for event in found[3].events if isinstance(event, TextPiece)) == ends[3].text


def test_greedy_and_sampled_rows_share_a_batch(model: ChatModel, dials: list[Dial]) -> None:
    settings = [{}, {"temperature": 1.5, "seed": 3}, {"temperature": 1.5, "seed": 3}, {"temperature": 1.5, "seed": 4}]
    with counted(model) as batches, working(model, dials) as engine:
        together = decoded(engine, [RecordedChoice(model, BENIGN, thresholds=OFF, **one) for one in settings])
        mixed = [one.text for one in together]
        alone = [decoded(engine, [RecordedChoice(model, BENIGN, thresholds=OFF, **one)])[0].text for one in settings]
    assert mixed == alone
    assert batches == [4, 1, 1, 1, 1]
    assert mixed[1] == mixed[2] != mixed[3]


def test_a_full_queue_refuses_and_takes_all_or_none(model: ChatModel, dials: list[Dial]) -> None:
    with held(model) as go, working(model, dials, max_batch=1, max_queue=2) as engine:
        first, *later = [RecordedChoice(model, BENIGN) for _ in range(4)]
        engine.submit([first.choice])
        until(lambda: engine.decoding == 1)
        engine.submit([later[0].choice])
        with pytest.raises(QueueFullError):
            engine.submit([later[1].choice, later[2].choice])
        assert engine.waiting == 1
        engine.submit([later[1].choice])
        go()
        until(lambda: all(one.done for one in (first, *later[:2])))
    assert not later[2].events


def test_a_withdrawn_choice_frees_its_place(model: ChatModel, dials: list[Dial]) -> None:
    with counted(model) as batches, held(model) as go, working(model, dials, max_batch=1, max_queue=1) as engine:
        first, waits, next_one = (RecordedChoice(model, BENIGN) for _ in range(3))
        engine.submit([first.choice])
        until(lambda: engine.decoding == 1)
        engine.submit([waits.choice])
        engine.withdraw([waits.choice])
        engine.submit([next_one.choice])  # there is room again
        engine.withdraw([first.choice])
        assert engine.decoding == 0
        go()
        until(lambda: next_one.done)
    assert next_one.text
    assert first.events == waits.events == []
    assert batches == [1, 1]


def test_a_batch_whose_choices_are_all_withdrawn_ends(tiny: ChatModel) -> None:
    steps = 0

    def count(stream: Tensor, _pass: Pass) -> Tensor:
        nonlocal steps
        steps += 1
        time.sleep(0.01)
        return stream

    with tiny.editing([Edit("resid_pre", 0, count)]), working(tiny, []) as engine:
        one = RecordedChoice(tiny, BENIGN, max_new_tokens=200, streamed=True)
        engine.submit([one.choice])
        until(lambda: steps > 2)
        engine.withdraw([one.choice])
        until(lambda: not engine._decoding or engine._decoding[0].over)
        at = steps
        decoded(engine, [RecordedChoice(tiny, BENIGN, max_new_tokens=1)])
    assert steps <= at + 3


def test_the_deadline_ends_an_answer_where_it_is(tiny: ChatModel) -> None:
    with tiny.editing([slowed(tiny, 0.02)]), working(tiny, []) as engine:
        found = decoded(engine, [RecordedChoice(tiny, BENIGN, max_new_tokens=200, deadline=time.monotonic() + 0.3)])
    end = found[0].events[-1]
    assert end.finish == "length"
    assert 1 <= end.n_tokens < 30


def test_rows_that_would_run_past_the_context_together_are_decoded_apart(tiny: ChatModel) -> None:
    long, short = "how do i fix it? " * 35, BENIGN
    with counted(tiny) as sizes, held(tiny) as go, working(tiny, []) as engine:
        first = RecordedChoice(tiny, short, max_new_tokens=1)
        engine.submit([first.choice])
        until(lambda: engine.decoding == 1)
        rest = [RecordedChoice(tiny, long, max_new_tokens=2), RecordedChoice(tiny, short, max_new_tokens=100),
                RecordedChoice(tiny, short, max_new_tokens=5)]  # fmt: skip
        assert len(rest[0].choice.row.token_ids) > 160
        engine.submit([one.choice for one in rest])
        go()
        until(lambda: all(one.done for one in rest))
    assert sizes == [1, 1, 2]


def test_out_of_memory_halves_the_batches_from_then_on(tiny: ChatModel) -> None:
    failed = failing(tiny, lambda stream, _: len(stream) > 2, torch.OutOfMemoryError("no more"))
    with counted(tiny) as sizes, failed, working(tiny, [], max_batch=6) as engine:
        texts = [one.text for one in decoded(engine, [RecordedChoice(tiny, text, max_new_tokens=4) for text in TEXTS])]
        again = [one.text for one in decoded(engine, [RecordedChoice(tiny, text, max_new_tokens=4) for text in TEXTS])]
    assert sizes[:3] == [4, 2, 2]
    assert max(sizes[3:]) <= 2  # of the four later ones
    assert texts == again == [record.completion for record in generate_once(tiny, TEXTS, [], {}, 4)]


def test_a_choice_that_emitted_before_memory_ran_out_fails_and_does_not_restart(tiny: ChatModel) -> None:
    def decoding(stream: Tensor, pass_: Pass) -> bool:
        return len(stream) > 2 and not pass_.is_prefill

    with failing(tiny, decoding, torch.OutOfMemoryError("no more")), working(tiny, []) as engine:
        failed = decoded(engine, [RecordedChoice(tiny, text, max_new_tokens=4) for text in TEXTS])
        fine = decoded(engine, [RecordedChoice(tiny, text, max_new_tokens=4) for text in TEXTS])
    assert [[type(event) for event in one.events] for one in failed] == [[PromptRead, Failed]] * 4
    assert all(one.text for one in fine)


def test_a_choice_that_does_not_fit_alone_fails_and_others_go_on(tiny: ChatModel) -> None:
    long = "how do i fix it? " * 20

    full = RuntimeError("CUDA error: out of memory")
    with failing(tiny, lambda stream, _: stream.shape[1] > 50, full), working(tiny, []) as engine:
        found = decoded(engine, [RecordedChoice(tiny, text, max_new_tokens=4) for text in (BENIGN, long, UNKNOWN)])
        four = [RecordedChoice(tiny, BENIGN, max_new_tokens=4) for _ in range(4)]
        with counted(tiny) as sizes:
            decoded(engine, four)
    assert sizes == [4]  # one long prompt does not make all later batches small
    assert found[1].events == [Failed("out of memory")]
    assert found[0].text
    assert found[2].text


def test_an_error_fails_the_batch_and_the_next_one_is_decoded(tiny, caplog) -> None:
    broken = [True]
    with failing(tiny, lambda *_: broken, ValueError("secret words")), working(tiny, []) as engine:
        (failed,) = decoded(engine, [RecordedChoice(tiny, BENIGN)])
        broken.clear()
        (fine,) = decoded(engine, [RecordedChoice(tiny, BENIGN)])
    assert failed.events == [Failed("decoding failed; see the server's log", transient=False)]
    assert "secret words" in caplog.text
    assert fine.text


PIECES = st.text("ab. ", max_size=20)


@given(PIECES, st.text("ab. ", min_size=1, max_size=3), st.data())
def test_the_pieces_are_the_text_before_the_stop(text: str, stop: str, data: st.DataObject) -> None:
    stops, sent, left = StopSequences([stop]), "", text
    while left:
        n = data.draw(st.integers(1, len(left)))
        sent += stops.push(left[:n])
        left = left[n:]
        assert text[: text.find(stop) if stop in text else None].startswith(sent)
    sent += stops.rest()
    assert sent == text.split(stop)[0]
    assert stops.met == (stop in text)


def test_of_several_the_first_counts_and_no_stop_holds_nothing_back() -> None:
    stops = StopSequences(["END", "."])
    assert stops.push("it is so. END") == "it is so"
    assert stops.met
    assert stops.push("more") == stops.rest() == ""
    none = StopSequences([])
    assert [none.push("E"), none.push("ND"), none.rest()] == ["E", "ND", ""]


class FakeClient:
    def __init__(self) -> None:
        self.left = asyncio.Event()

    @property
    def connection(self) -> Request:
        async def receive() -> dict[str, str]:
            await self.left.wait()
            return {"type": "http.disconnect"}

        return Request({"type": "http"}, receive)


async def waited(caller: FakeClient, rendering: RenderQueue, work: Callable[[], object], seconds: float = 60) -> object:
    try:
        async with until_disconnect(caller.connection, time.monotonic() + seconds):
            return await rendering.run(work)
    except ApiError as error:
        return error.detail.code


def test_the_render_queue_is_bounded_and_clients_may_disconnect() -> None:
    go, done = threading.Event(), []

    async def scenario() -> None:
        rendering, leaver = RenderQueue(2), FakeClient()
        held = asyncio.create_task(waited(FakeClient(), rendering, lambda: go.wait(20)))
        leaves = asyncio.create_task(waited(leaver, rendering, lambda: done.append("left")))
        await asyncio.sleep(0)
        assert await waited(FakeClient(), rendering, lambda: done.append("too many")) == "queue_full"
        leaver.left.set()
        assert await leaves == "queue_timeout"  # never sent
        assert await waited(FakeClient(), rendering, lambda: done.append("late"), 0.05) == "queue_timeout"
        waits = asyncio.create_task(waited(FakeClient(), rendering, lambda: done.append("waited")))
        await asyncio.sleep(0)
        go.set()
        assert await held is True
        await waits
        rendering.close()

    asyncio.run(scenario())
    assert done == ["waited"]


def test_a_block_that_ends_in_time_keeps_its_result_and_its_errors() -> None:
    async def scenario() -> None:
        async with until_disconnect(FakeClient().connection, time.monotonic() + 60):
            pass
        with pytest.raises(ValueError, match="own"):
            async with until_disconnect(FakeClient().connection):
                raise ValueError("its own")

    asyncio.run(scenario())
