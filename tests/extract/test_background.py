"""Work beside the forward pass: in order, bounded, and never silently lost."""

import threading
import time

import pytest

from extract.background import BackgroundError, Overlap
from extract.errors import UserError


def test_pieces_are_done_in_order_and_all_at_the_end() -> None:
    done: list[int] = []
    with Overlap(ahead=2) as overlap:
        for i in range(20):
            overlap.submit(lambda i=i: (time.sleep(0.001), done.append(i)))
    assert done == list(range(20))


def test_it_runs_beside_the_caller() -> None:
    seen = threading.Event()
    with Overlap() as overlap:
        overlap.submit(seen.set)
        assert seen.wait(5)


def test_no_more_than_a_few_pieces_wait() -> None:
    gate, started = threading.Event(), []
    with Overlap(ahead=2) as overlap:
        caller = threading.Thread(target=lambda: [(overlap.submit(gate.wait, 5), started.append(i)) for i in range(6)])
        caller.start()
        time.sleep(0.2)
        assert len(started) <= 2
        gate.set()
        caller.join(5)
    assert len(started) == 6


def test_an_error_there_is_raised_here() -> None:
    def fail() -> None:
        raise OSError("No space left on device")

    with pytest.raises(BackgroundError, match="No space left"), Overlap() as overlap:
        overlap.submit(fail)
    overlap = Overlap(ahead=1)
    overlap.submit(fail)
    with pytest.raises(BackgroundError, match="No space left"):  # at the next call already
        overlap.submit(time.sleep, 0)


def test_what_was_handed_over_is_still_done_after_an_interruption() -> None:
    done: list[int] = []

    def interrupted() -> None:
        with Overlap(ahead=9) as overlap:
            for i in range(5):
                overlap.submit(lambda i=i: (time.sleep(0.01), done.append(i)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == list(range(5))


def test_after_an_error_nothing_more_is_done() -> None:
    """A shard one of whose batches was not put in place must not be written."""
    done: list[int] = []

    def fail() -> None:
        time.sleep(0.05)
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    def work() -> None:
        with Overlap(ahead=4) as overlap:
            overlap.submit(fail)
            overlap.submit(done.append, 1)

    with pytest.raises(BackgroundError, match="can't allocate") as caught:
        work()
    assert not isinstance(caught.value, RuntimeError)  # which would be taken for the forward pass's own
    assert done == []


def test_a_users_error_stays_one() -> None:
    def fail() -> None:
        raise UserError("the disk is full")

    with pytest.raises(UserError, match="the disk is full"), Overlap() as overlap:
        overlap.submit(fail)
