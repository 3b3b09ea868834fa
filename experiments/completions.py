"""What a model said and did: greedy completions of chosen prompts, plainly or under edits or dials, and judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from experiments.judges import Judge, Said
from extract.backoff import TokenBudget
from extract.chat import Rendered
from extract.edit import Edit
from extract.errors import UserError
from extract.model import ChatModel
from extract.prompts import Prompt
from steering.controller import steering
from steering.dial import Dial


@dataclass(frozen=True)
class Completion:
    """One judged completion. `action` is None where the judge could not tell."""

    id: str
    text: str
    completion: str
    action: str | None
    evidence: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Speaker:
    """A model with rendered prompts to complete."""

    model: ChatModel
    prompts: Sequence[Prompt]
    rendered: Sequence[Rendered]
    max_new_tokens: int
    batch_size: int
    judge: Judge

    def complete(
        self,
        rows: Sequence[int],
        *,
        edits: Sequence[Edit] = (),
        dials: Sequence[Dial] = (),
        advance: Callable[[int], None] = lambda steps: None,
    ) -> list[Completion]:
        """Complete the given prompts, in the order given; batches are of like length, smaller if memory runs out."""
        done: dict[int, Completion] = {}
        by_length = sorted(rows, key=lambda row: len(self.rendered[row].token_ids))

        def work(places: list[int]) -> None:
            index = [by_length[place] for place in places]
            done.update(zip(index, self._batch(index, edits, dials), strict=True))
            advance(len(index))

        TokenBudget(self.batch_size).run([1] * len(rows), work)  # it counts rows here: their responses weigh alike
        return [done[row] for row in rows]

    def actions(self, rows: Sequence[int], *, edits: Sequence[Edit] = (), dials: Sequence[Dial] = ()) -> np.ndarray:
        """Return only what was done, an object array of action names (None where unjudged)."""
        return np.array([c.action for c in self.complete(rows, edits=edits, dials=dials)], dtype=object)

    def _batch(self, index: Sequence[int], edits: Sequence[Edit], dials: Sequence[Dial]) -> list[Completion]:
        rendered = [self.rendered[i] for i in index]
        batch = self.model.batch(rendered)
        with self.model.editing(edits), steering(self.model, dials, batch, rendered):
            responses = self.model.generate(batch, self.max_new_tokens)
        asked = [self.prompts[i] for i in index]
        texts = [self.model.decode(tokens) for tokens in responses]
        said = [Said(text, prompt.text, prompt.messages) for text, prompt in zip(texts, asked, strict=True)]
        return [
            Completion(prompt.id, prompt.text, text, verdict.action, verdict.evidence, tuple(tokens))
            for prompt, text, verdict, tokens in zip(asked, texts, self.judge.judge_all(said), responses, strict=True)
        ]


def write_completions(completions: Sequence[Completion], path: Path) -> None:
    """Write JSONL, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    lines = (json.dumps(asdict(completion), ensure_ascii=False) for completion in completions)
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(path)


def read_completions(path: Path) -> list[Completion]:
    """Read completions written by `write_completions`."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [Completion(**row | {"token_ids": tuple(row["token_ids"])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and run again") from None
