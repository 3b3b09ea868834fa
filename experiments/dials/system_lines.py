"""System-line baseline: the same prompts with one more line in the system message, one trade-off point a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int, Shaped

from experiments.responses.loaded_run import LoadedRun
from experiments.run.completion_file import is_right
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt


@dataclass(frozen=True)
class LineResponses:
    """The responses under one system line."""

    line: str
    actions: Shaped[np.ndarray, " rows"]  # object: action names, None where unjudged
    right: Bool[np.ndarray, " rows"]  # the known answer is stated


def with_line(prompt: Prompt, line: str) -> Prompt:
    """Return the prompt with a line at the start of its system message; without one, a system message is added."""
    first = prompt.messages[0]
    if first["role"] == "system":
        return replace(prompt, messages=({**first, "content": f"{line}\n{first['content']}"}, *prompt.messages[1:]))
    return replace(prompt, messages=({"role": "system", "content": line}, *prompt.messages))


def ask_under_lines(
    loaded: LoadedRun, lines: Sequence[str], rows: Int[np.ndarray, " rows"]
) -> tuple[list[LineResponses], str]:
    """Ask some prompts again with each system line; return the responses, or the reason why there are none."""
    asked = [loaded.prompts[row] for row in rows]
    found = []
    try:
        rendered = {line: [render(loaded.model.tokenizer, with_line(p, line)) for p in asked] for line in lines}
    except UserError as error:
        return [], f"the chat template takes no system message ({error}); model.system=merge puts it into the user turn"
    with loaded.reporter.task("test prompts under system lines", len(lines) * len(asked)) as advance:
        for line, given in rendered.items():
            prompts = [with_line(p, line) for p in asked]
            completer = replace(loaded.completer, prompts=prompts, rendered=given)
            completions = completer.complete(range(len(asked)), advance=advance)
            right = np.array([is_right(c, p) for c, p in zip(completions, asked, strict=True)], dtype=bool)
            found.append(LineResponses(line, np.array([c.action for c in completions], dtype=object), right))
    return found, ""
