"""Reading ahead: the next locus is read during the work on the present one, and no more than that."""

from __future__ import annotations

import threading
import time
import weakref

import numpy as np
import pytest

from probes.grid.probe_grid import read_ahead

KEYS = [(i, j) for i in range(4) for j in range(2)]


class Recorded:
    """Loci of one number each; remembers which were read, by which threads, and which are alive."""

    def __init__(self, seconds: float = 0.0, fails: tuple[int, int] | None = None) -> None:
        self.reads: list[tuple[int, int]] = []
        self.threads: set[str] = set()
        self._alive: list[weakref.ref[np.ndarray]] = []
        self._seconds, self._fails = seconds, fails

    def __getitem__(self, key: tuple[int, int], /) -> np.ndarray:
        time.sleep(self._seconds)
        self.reads.append(key)
        self.threads.add(threading.current_thread().name)
        if key == self._fails:
            raise OSError("wrong CRC-32")
        X = np.full((3, 2), 10 * key[0] + key[1])
        self._alive.append(weakref.ref(X))
        return X

    @property
    def alive(self) -> int:
        return sum(ref() is not None for ref in self._alive)


def test_loci_come_in_order_and_at_most_two_are_in_memory() -> None:
    source, seen = Recorded(), []
    for X in read_ahead(source, KEYS):
        seen.append(X[0, 0])
        deadline = time.monotonic() + 5
        while len(source.reads) < min(len(seen) + 1, len(KEYS)) and time.monotonic() < deadline:
            time.sleep(1e-3)
        time.sleep(5e-3)  # time in which a third could be read
        assert len(source.reads) == min(len(seen) + 1, len(KEYS))
        assert source.alive <= 2
        del X
    assert seen == [10 * i + j for i, j in KEYS]
    assert source.reads == KEYS
    assert threading.main_thread().name not in source.threads


def test_an_error_is_raised_in_its_turn() -> None:
    source = Recorded(fails=KEYS[2])
    loci = read_ahead(source, KEYS)
    seen = [next(loci)[0, 0], next(loci)[0, 0]]
    with pytest.raises(OSError, match="wrong CRC-32"):
        next(loci)
    assert seen == [0, 1]
    assert source.reads == KEYS[:3]


def test_stopping_early_ends_the_thread() -> None:
    loci = read_ahead(Recorded(seconds=0.01), KEYS)
    next(loci)
    loci.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("refusal-read-ahead")]
