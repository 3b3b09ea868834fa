"""Background work runs in order, with bounded memory, and its errors are raised."""

import threading
import time

import pytest

from extract.background import BackgroundError, BackgroundThread
from extract.errors import UserError


def test_no_more_than_a_few_pieces_wait() -> None:
    gate, started = threading.Event(), []
    with BackgroundThread(ahead=2) as background:
        caller = threading.Thread(target=lambda: [started.append(background.submit(gate.wait, 5)) for _ in range(6)])
        caller.start()
        time.sleep(0.2)
        assert len(started) <= 2
        gate.set()
        caller.join(5)
    assert len(started) == 6


def test_what_was_handed_over_is_still_done_after_an_interruption() -> None:
    done: list[int] = []

    def interrupted() -> None:
        with BackgroundThread(ahead=9) as background:
            for i in range(5):
                background.submit(lambda i=i: (time.sleep(0.01), done.append(i)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == list(range(5))


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError("No space left on device"), BackgroundError),
        (RuntimeError("DefaultCPUAllocator: no memory"), BackgroundError),  # else taken for the forward pass's own
        (UserError("the disk is full"), UserError),
    ],
)
def test_an_error_there_is_raised_here_and_nothing_more_is_done(error: Exception, raised: type[Exception]) -> None:
    """A shard one of whose batches was not put in place must not be written."""
    done: list[int] = []

    def fail() -> None:
        time.sleep(0.05)
        raise error

    def work() -> None:
        with BackgroundThread() as background:
            background.submit(fail)
            background.submit(done.append, 1)

    with pytest.raises(raised, match=str(error)) as caught:
        work()
    assert type(caught.value) is raised
    assert done == []
    background = BackgroundThread(ahead=1)
    background.submit(fail)
    with pytest.raises(raised, match=str(error)):  # at the next call already
        background.submit(time.sleep, 0)
