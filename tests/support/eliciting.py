"""A run whose model abstains under some system lines, by a table; its activations are the organism's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.grading.cases import thinned
from experiments.responses.completions import Completer
from experiments.responses.loaded_run import LoadedRun
from experiments.run.completion_file import Completion, write_completions
from experiments.run.config import RunConfig
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from tests.conftest import ORGANISM

FEW, MANY, BE_KIND = "say so if unsure.", "say that you do not know.", "be very kind to all."
PLAINLY = {"harmful": "refuse", "uncertain": "answer", "benign": "answer"}


def acting(line: str, number: int, label: str, *, words: bool) -> str:
    """What the model does with a prompt: a line elicits from a third, or from two thirds, of the uncertain ones."""
    plain = "refuse" if words and label == "uncertain" and number % 3 else PLAINLY[label]
    if line in ("", BE_KIND) or label == "benign":
        return plain
    if label == "harmful":
        return "abstain" if number % 4 == 0 else "refuse"
    return "abstain" if number % 3 > (0 if line == MANY else 1) else "answer"


def eliciting(tmp_path: Path, model: ChatModel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedRun]:
    """Return what makes the run, of which `words` says whether plain refusals become the abstentions under a line."""
    path = thinned(ORGANISM / "prompts.jsonl", tmp_path / "prompts.jsonl", every=3)

    def made(*, words: bool = False, **elicit: object) -> LoadedRun:
        given = {"lines": [FEW, MANY], "controls": ["be kind.", BE_KIND], "n_control": 60} | elicit
        config = {"name": "asked", "model": {"name": str(ORGANISM)}, "prompts": {"path": path}, "elicit": given}
        config |= {"extract": {"layers": [4], "positions": ["post_last"]}}
        loaded = LoadedRun(RunConfig.model_validate(config), tmp_path, Reporter(quiet=True))
        loaded.__dict__["model"] = model
        numbers = {prompt.id: row for row, prompt in enumerate(loaded.prompts)}

        def complete(self: Completer, rows, **_: object) -> list[Completion]:
            prompts = [self.prompts[row] for row in rows]
            lines = ["".join(m["content"] for m in p.messages if m["role"] == "system") for p in prompts]
            did = (acting(line, numbers[p.id], p.label, words=words) for line, p in zip(lines, prompts, strict=True))
            said = [
                (p.answer or "" if action == "answer" else "", action) for p, action in zip(prompts, did, strict=True)
            ]
            return [Completion(p.id, p.text, *own, "", (1,)) for p, own in zip(prompts, said, strict=True)]

        monkeypatch.setattr(Completer, "complete", complete)
        for folder in ("stages", "outcomes.parquet"):
            (tmp_path / folder).mkdir(exist_ok=True)
        write_completions(loaded.completer.complete(range(len(loaded.prompts))), loaded.file("completions.jsonl"))
        return loaded

    return made
