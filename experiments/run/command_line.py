"""The command line of this process as text for the log and the lock of a run, without secrets."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

HIDDEN = "***"
NAMES = r"[A-Za-z_.-]*(?:token|password|passwd|secret|api[_-]?key|credential)s?"
SECRETS = (
    (re.compile(rf"(?i)^((?:--)?{NAMES}=).+"), rf"\1{HIDDEN}"),  # --set judge.api_key=VALUE, --token=VALUE
    (re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_)[A-Za-z0-9_-]{8,}"), HIDDEN),
    (re.compile(r"(://)[^/@\s]+@"), rf"\1{HIDDEN}@"),  # https://user:password@host
)
SECRET_OPTION = re.compile(rf"(?i)^--{NAMES}$")
COUNTS = re.compile(r"(?i)^(?:--)?[a-z_.-]*(?:max|min|new|response|thought|kl|budget)[a-z_.-]*tokens?\b")  # of a text


def command_line(arguments: Sequence[str] | None = None) -> str:
    """Return the command line, quoted for a shell, with secrets replaced by `***`.

    Args:
        arguments: by default those of this process.
    """
    given = list(sys.argv if arguments is None else arguments)
    program = Path(given[0]) if given else Path()
    words = [program.parent.name if program.name == "__main__.py" else program.name, *given[1:]]  # python -m refusal
    shown = [_hidden(word, before) for before, word in zip(["", *words], words, strict=False)]
    return shlex.join(shown)


def _hidden(word: str, before: str) -> str:
    if SECRET_OPTION.match(before) and not COUNTS.match(before):
        return HIDDEN
    for pattern, shown in SECRETS if not COUNTS.match(word) else SECRETS[1:]:
        word = pattern.sub(shown, word)
    return word
