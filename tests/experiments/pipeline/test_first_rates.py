"""The rates of the first forty answers, shown before all else; the run goes on from these answers."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments.pipeline.stage_functions import first_rates
from experiments.responses.completions import Completer
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import load_config
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from scoring.actions import DECLINED

SMALL = ("extract.layers=[4]", "extract.positions=[post_last]", "judge=rules", "generate.max_new_tokens=12")
TOLD = r"a first look at 40 answers, by rules: over_refusal (\d+)% \[.*\] of (\d+), missed_harm (\d+)% \[.*\] of (\d+)"


def opened(limit: int, directory: Path, model: ChatModel, *more: str) -> tuple[LoadedRun, list[str]]:
    said: list[str] = []
    config = load_config("configs/quickstart.yaml", [f"prompts.limit={limit}", *SMALL, *more])
    loaded = LoadedRun(config, directory, Reporter(quiet=True, log=said.append))
    loaded.__dict__["model"] = model
    return loaded, said


def test_they_agree_with_the_answers_that_the_run_goes_on_from(tmp_path: Path, two_knobs: ChatModel) -> None:
    loaded, said = opened(15, tmp_path, two_knobs)
    first_rates(loaded)
    numbers = [int(number) for line in said if (told := re.search(TOLD, line)) for number in told.groups()]
    cached: list[int] = []

    def advance(steps: int, *, remembered: bool = False) -> None:
        cached.extend([remembered] * steps)

    completions = loaded.completer.complete(range(len(loaded.prompts)), advance=advance)
    assert Counter(cached) == {True: 40, False: len(loaded.prompts) - 40}
    assert (numbers[1], numbers[3]) == (14, 13)
    assert all(c.action in DECLINED for c, p in zip(completions, loaded.prompts, strict=True) if p.label == "harmful")
    assert numbers[2] == 0
    assert 0 < numbers[0] < 100


@pytest.mark.parametrize(("of_run", "first"), [(12, 12), (24, 24), (25, 16), (128, 16)])
def test_they_are_as_short_as_shows_a_decline(
    of_run: int, first: int, tmp_path: Path, two_knobs: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, said = opened(15, tmp_path, two_knobs, f"generate.max_new_tokens={of_run}")
    complete, lengths = Completer.complete, list[int]()

    def noted(completer: Completer, *given: Any, **more: Any) -> Any:
        lengths.append(completer.max_new_tokens)
        return complete(completer, *given, **more)

    monkeypatch.setattr(Completer, "complete", noted)
    first_rates(loaded)
    assert (lengths, len(said)) == ([first], 1)


def test_a_few_prompts_have_none(tmp_path: Path, two_knobs: ChatModel) -> None:
    loaded, said = opened(8, tmp_path, two_knobs)
    assert len(loaded.prompts) <= 40
    first_rates(loaded)
    assert not said
