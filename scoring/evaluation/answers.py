"""Answers that are kept as they come: an evaluation that is killed asks only for the rest when it is run again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from extract.keyed_file import KeyedFile, content_key
from extract.prompts.prompt import Prompt
from scoring.judges import RefusedBy


@dataclass(frozen=True)
class Answer:
    """A model's answer; token counts are None where they are not known.

    Where `by` is given it is a refusal reported outside the text, and `text` the words that came with it.
    """

    text: str
    cut_off: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    by: RefusedBy | None = None


class KeptAnswers:
    """A thread-safe file of answers, each on the disk before the next is asked for.

    Args:
        asked_of: all that an answer depends on besides the prompt: the model, the endpoint, the settings.

    Raises:
        UserError: the file cannot be used.
    """

    def __init__(self, path: Path, asked_of: Sequence[object]) -> None:
        remedy = "choose another directory with --out, or delete it to ask everything again"
        self._file = KeyedFile(path, "answers", ("answer",), purpose="the answers so far", remedy=remedy)
        self._asked_of = tuple(asked_of)

    def get(self, prompt: Prompt) -> Answer | None:
        """Return the answer that is kept, if there is one."""
        key = self._key(prompt)
        found = self._file.get([key])
        return Answer(**json.loads(found[key][0])) if key in found else None

    def put(self, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        """Keep answers; they are on the disk when this returns."""
        rows = {self._key(prompt): [json.dumps(vars(answer))] for prompt, answer in zip(prompts, answers, strict=True)}
        self._file.put(rows)

    def left(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts without an answer; of several with the same messages, the first."""
        waiting = {self._key(prompt): prompt for prompt in reversed(prompts)}
        done = self._file.get(waiting)
        return [prompt for key, prompt in reversed(waiting.items()) if key not in done]

    def rows(self, prompts: Sequence[Prompt]) -> Iterator[tuple[Prompt, Answer | None]]:
        """Yield each prompt with its answer, in the prompts' order."""
        for prompt in prompts:
            yield prompt, self.get(prompt)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _key(self, prompt: Prompt) -> str:
        return content_key(*self._asked_of, prompt.messages)
