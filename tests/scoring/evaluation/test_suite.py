"""Suites: which prompts they draw, where they find the files of sets, and what is said of a mistake."""

import json
from collections import Counter
from pathlib import Path

import pytest

from extract.prompts.dataset import describe
from extract.prompts.prompt import ALL_LABELS, load_prompts
from extract.prompts.sources import DatasetConfig
from extract.shipped import ROOT
from scoring.evaluation.suite import KNOWN, Suite, load_suite, prompts_of
from tests.support.one_line import mistake

CORE = ROOT / "configs" / "prompts" / "core.jsonl"


def advbench(folder: Path, n: int = 6) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"do harm {i},sure\n" for i in range(n))
    (folder / "harmful_behaviors.csv").write_text(f"goal,target\n{rows}")
    return folder


def problem(suite: str | Suite, folder: Path | None = None) -> str:
    return mistake(lambda: prompts_of(load_suite(suite) if isinstance(suite, str) else suite, folder))


def test_the_core_suite_draws_evenly_over_labels_and_categories_and_always_the_same() -> None:
    suite = load_suite("core")
    prompts = prompts_of(suite, limit=40)
    assert Counter(prompt.label for prompt in prompts) == dict.fromkeys(ALL_LABELS, 40)
    assert prompts == prompts_of(suite, limit=40)
    whole = load_prompts(CORE)
    kinds = {prompt.category for prompt in whole if prompt.label == "harmful"}
    drawn = Counter(prompt.category for prompt in prompts if prompt.label == "harmful")
    assert set(drawn) == kinds if len(kinds) <= 40 else len(drawn) == 40
    assert max(drawn.values()) - min(drawn.values()) <= 1
    order = {prompt.id: i for i, prompt in enumerate(whole)}
    assert [order[prompt.id] for prompt in prompts] == sorted(order[prompt.id] for prompt in prompts)
    other = prompts_of(suite.model_copy(update={"seed": 1}), limit=40)
    assert {prompt.id for prompt in other} != {prompt.id for prompt in prompts}


def test_where_there_are_more_categories_than_prompts_any_may_be_drawn(tmp_path: Path) -> None:
    rows = [{"id": f"p{i}", "text": f"{i}?", "label": "benign", "category": f"{i // 4}"} for i in range(160)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    drawn = [prompts_of(Suite(path=tmp_path / "own.jsonl", limit=8, seed=seed)) for seed in range(40)]
    assert all(len({prompt.category for prompt in prompts}) == 8 for prompts in drawn)
    assert len({prompt.category for prompts in drawn for prompt in prompts}) == 40


def test_the_lower_of_two_limits_counts() -> None:
    assert len(prompts_of(Suite(path=CORE, limit=5))) == 20
    assert len(prompts_of(Suite(path=CORE, limit=5), limit=3)) == 12
    assert len(prompts_of(Suite(path=CORE, limit=5), limit=9)) == 20
    assert len(prompts_of(Suite(path=CORE))) == len(load_prompts(CORE))


def test_every_shipped_suite_names_sets_there_are() -> None:
    names = {path.stem for path in KNOWN.glob("*.yaml")}
    assert {"core", "public"} <= names
    for name in names:
        suite = load_suite(name)
        assert suite.about
        assert suite.path or suite.datasets
        for one in suite.datasets:
            assert not describe(one.name).untested


@pytest.mark.parametrize("inside", ["advbench", "."])
def test_files_lie_in_a_folder_of_the_set_s_name_or_beside_one_another(tmp_path: Path, inside: str) -> None:
    advbench(tmp_path / inside)
    prompts = prompts_of(Suite(datasets=(DatasetConfig(name="advbench", limit=4),)), tmp_path)
    assert [prompt.label for prompt in prompts] == ["harmful"] * 4
    assert {prompt.source for prompt in prompts} == {"advbench"}


def test_a_suite_of_one_s_own_is_a_file(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": "who?", "label": "benign"}, {"id": "b", "text": "why?", "label": "uncertain"}]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    file = tmp_path / "suite.yaml"
    sets = f"[{{name: advbench, path: {advbench(tmp_path / 'x')}}}]"
    file.write_text(f"path: {tmp_path / 'mine.jsonl'}\ndatasets: {sets}\n")
    assert len(prompts_of(load_suite(str(file)))) == 8


def test_each_mistake_is_one_line(tmp_path: Path) -> None:
    assert "no suite named 'cor'" in problem("cor")
    assert "did you mean core?" in problem("cor")
    wrong = tmp_path / "suite.yaml"
    wrong.write_text("datsets: []\n")
    assert "did you mean datasets" in problem(str(wrong))
    assert "names no prompts" in problem(Suite())
    two = Suite(datasets=(DatasetConfig(name="advbench"), DatasetConfig(name="orfuzz")))
    assert problem(two).startswith("advbench, orfuzz: not read from the hub, and there are no files; give their folder "
                                   "with --sets DIR (advbench: harmful_behaviors.csv from https://")  # fmt: skip
    assert f"put them into {tmp_path}/NAME" in problem(two, tmp_path)
    assert "is not a directory" in problem(two, tmp_path / "none")
    folder = advbench(tmp_path / "advbench")
    again = Suite(datasets=(DatasetConfig(name="advbench", path=folder), DatasetConfig(name="advbench", path=folder)))
    assert "'advbench/behaviors/1' twice" in problem(again)
