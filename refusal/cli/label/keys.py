"""Single keys from a terminal. The terminal stays in one mode for a whole session, so no key typed ahead is lost."""

from __future__ import annotations

import os
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END = ("\x03", "\x04")  # Ctrl-C and Ctrl-D, which come as keys here, so that neither interrupts a write
LOCAL_FLAGS = 3  # index in what `tcgetattr` returns


@contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """Yield a function that waits for a key and returns it; an arrow or function key is one text of several characters.

    The function raises EOFError when the terminal closes.
    """
    terminal, waiting = sys.stdin.fileno(), deque[str]()

    def read() -> str:
        if not waiting:
            text = os.read(terminal, 1024).decode(errors="replace")
            if not text:
                raise EOFError
            waiting.extend([text] if text.startswith("\x1b") else text)
        return waiting.popleft()

    before = termios.tcgetattr(terminal)
    mode = termios.tcgetattr(terminal)
    mode[LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
    try:
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
