"""What a user's mistake looks like: on the command line, and as an error."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from extract.errors import UserError


def mistake(function: Callable[..., object], *given: Any, **more: Any) -> str:
    """Return the message of the UserError, in one line, that a call raises."""
    with pytest.raises(UserError) as caught:
        function(*given, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(pattern: str, function: Callable[..., object], *given: Any, **more: Any) -> None:
    """Assert that a call raises a UserError whose one line holds a regular expression."""
    message = mistake(function, *given, **more)
    assert re.search(pattern, message), message


def printed(said: tuple[int, str, str]) -> str:
    """Return what a command that succeeds prints."""
    code, out, err = said
    assert code == 0, err
    return out


def one_line(said: tuple[int, str, str], *parts: str) -> str:
    """Return the message of a mistake: exit code 2, nothing printed, and one line of error that holds these parts."""
    code, out, err = said
    assert (code, out) == (2, ""), err
    assert err.startswith("refusal: ")
    assert err.count("\n") == 1, err
    for part in parts:
        assert part in err
    return err.removeprefix("refusal: ").strip()
