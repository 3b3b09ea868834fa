"""One prefill: the passes that capture activations serve the plain answers and those under interventions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.pipeline.stage_functions import FUNCTIONS
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.config import load_config
from extract.model.chat_model import ChatModel
from extract.model.kept_prompts import KeptPrompts
from steering.interventions import add, place

Open = Callable[[str, int | None], LoadedRun]


@pytest.fixture
def opened(two_knobs: ChatModel, tmp_path: Path) -> Open:
    """Open a run that answers a few of its prompts, in a new directory; it keeps so many bytes."""

    def run(name: str, most: int | None) -> LoadedRun:
        given = ["prompts.limit=30", "generate.limit=8", "generate.limit_dual_use=0", "generate.max_new_tokens=8"]
        loaded = LoadedRun(load_config("configs/quickstart.yaml", given), tmp_path / name)
        loaded.directory.mkdir()
        loaded.__dict__["model"] = two_knobs
        loaded.__dict__["kept"] = KeptPrompts(two_knobs, [row.token_ids for row in loaded.rendered], most)
        return loaded

    return run


def test_answers_and_activations_are_those_of_prompts_that_are_read_each_time(
    opened: Open, two_knobs: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []  # prompt tokens before the last of each pass that decodes or answers
    run = ChatModel.run

    def counted(self: ChatModel, module: object, batch: object, **extra: object) -> object:
        read.append(batch.tokens.numel() if batch.tokens.shape[1] > 4 else 0)  # type: ignore[attr-defined]
        return run(self, module, batch, **extra)  # type: ignore[arg-type]

    once, again = opened("once", None), opened("again", 0)
    r = torch.linspace(-1, 1, two_knobs.d_model)
    settings = [Setting([place("resid_post", 2, "last_on", lambda x, by=by: add(x, r, by))]) for by in (1.0, 9.0)]
    rows, tokens = range(len(once.prompts)), dict[str, list[int]]()
    monkeypatch.setattr(ChatModel, "run", counted)
    for loaded in (once, again):
        for stage in ("extract", "respond"):
            read.clear()
            FUNCTIONS[stage](loaded)
            tokens[f"{stage} {loaded.directory.name}"] = list(read)
    assert sum(tokens["extract once"]) == sum(tokens["extract again"])
    assert sum(tokens["respond once"]) < sum(tokens["respond again"]) / 4  # a few rows, to check that the model goes on
    assert once.completions == again.completions
    assert np.array_equal(once.store.read(4, "post_last"), again.store.read(4, "post_last"))
    read.clear()
    found = once.completer.complete_each(rows, settings)
    assert sum(read) == 0
    assert found[0] != found[1]
    assert found == again.completer.complete_each(rows, settings)
    assert sum(read) > 0
