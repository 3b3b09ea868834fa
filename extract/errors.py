"""The error for a mistake in the user's input, and one line for an error of a library or a missing package."""

import importlib.metadata
import importlib.util
import re
from collections import Counter

MOST_CHARS = 200
NOT_FOR_USERS = {"bench", "llama", "docs", "dev"}  # extras
PACKAGE_OF = {"sklearn": "scikit-learn", "vl_convert": "vl-convert-python"}  # imported by another name


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


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return one line that names the smallest extra with a missing package; None for a module of no extra."""
    module = (error.name or "").partition(".")[0]
    if not module or _installed(module):  # a part of it is missing: another version
        return None
    package = PACKAGE_OF.get(module, module).replace("_", "-").lower()
    wanted = [
        (part[1].lower(), part[2])
        for requirement in _requirements()
        if (part := re.match(r"([\w.-]+).*extra == '(\w+)'", requirement)) and part[2] not in NOT_FOR_USERS
    ]
    sizes = Counter(extra for _, extra in wanted)
    extras = sorted({extra for name, extra in wanted if name == package}, key=lambda extra: sizes[extra])
    if not extras:
        return None
    brought = f"pip install 'refusal-probes[{extras[0]}]'"
    return f"{package} is not installed; it comes with the extra {extras[0]} of this package: {brought}"


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it was set to None, as if it were not
        return False


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("refusal-probes") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        return []
