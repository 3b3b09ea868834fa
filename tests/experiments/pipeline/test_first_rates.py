"""The rates of the first forty answers, shown before all else; the run goes on from these answers."""

import re
from collections import Counter
from pathlib import Path

from experiments.pipeline.stage_functions import first_rates
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import load_config
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from scoring.actions import DECLINED

SMALL = ("extract.layers=[4]", "extract.positions=[post_last]", "judge=rules", "generate.max_new_tokens=12")
TOLD = r"a first look at 40 answers, by rules: over_refusal (\d+)% \[.*\] of (\d+), missed_harm (\d+)% \[.*\] of (\d+)"


def opened(limit: int, directory: Path, model: ChatModel) -> tuple[LoadedRun, list[str]]:
    said: list[str] = []
    config = load_config("configs/quickstart.yaml", [f"prompts.limit={limit}", *SMALL])
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


def test_a_few_prompts_have_none(tmp_path: Path, two_knobs: ChatModel) -> None:
    loaded, said = opened(8, tmp_path, two_knobs)
    assert len(loaded.prompts) <= 40
    first_rates(loaded)
    assert not said
