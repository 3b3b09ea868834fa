"""The error for a mistake in the user's input, and one line for an error of a library."""

MOST_CHARS = 200


class UserError(ValueError):
    """A mistake in the user's input: the message names what was given, what was expected, what to do.

    The command line prints it in one line and exits with code 2; a notebook shows that line in place of a traceback.
    """

    def _render_traceback_(self) -> list[str]:  # IPython calls it
        return [f"{type(self).__name__}: {self}"]


def in_one_line(error: BaseException) -> str:
    """Return what a library's error says, in one line: its first, with the next one where that only announces it."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    said = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return shortened(said)


def shortened(text: str, most: int = MOST_CHARS) -> str:
    """Return a text that is cut where it is long."""
    return text if len(text) <= most else text[: most - 1] + "…"
