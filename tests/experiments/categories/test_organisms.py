"""Categories and tasks of models that know the answer: every pair is right, and over-refusal by task is separate."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.categories.results import CategoryResults, Tradeoff
from experiments.pipeline.stages import run
from experiments.run.config import load_config
from extract.progress import Reporter
from extract.shipped import ROOT
from organisms.spec import load_spec

ZOO = ROOT / "organisms" / "zoo"


def categories_of(name: str, directory: Path) -> CategoryResults:
    settings = [f"model.name={ZOO / name}", f"prompts.path={ZOO / name / 'prompts.jsonl'}",
                "extract.positions=[post_last]"]  # fmt: skip
    config = load_config(Path("configs/quickstart.yaml"), settings)
    run(config, directory, until="categories", reporter=Reporter(quiet=True))
    return CategoryResults.read(directory / "stages" / "categories.json")


def check(name: str, found: CategoryResults, rank: int) -> None:
    stated = load_spec(ZOO / name / "spec.yaml").categories
    assert stated is not None
    assert found.normative.verdict in stated.allowed
    true = {frozenset(pair.between): pair.verdict for pair in stated.pairs}
    assert {frozenset(pair.between): pair.verdict for pair in found.normative.pairs} == true
    assert (found.normative.rank, found.normative.rank_settled) == (rank, True)


@pytest.mark.slow
def test_two_categories_share_and_one_is_apart(tmp_path: Path) -> None:
    """The other two organisms are graded by `python -m benchmarks.validity --categories`."""
    check("categories-partly", categories_of("categories-partly", tmp_path / "run"), 2)


def at_full_strength(of: Tradeoff | None) -> dict[str, tuple[float, float]]:
    assert of is not None
    return {
        point.way: (point.over_refusal_gone.estimate, point.harmful_refusal_lost.estimate)
        for point in of.points
        if point.strength == 1
    }


@pytest.mark.slow
def test_over_refusal_by_task_goes_with_its_own_span_and_not_with_the_normative_direction(tmp_path: Path) -> None:
    found = categories_of("tasks", tmp_path / "run")
    check("tasks", found, 1)
    assert found.over_refusal.verdict == "distinct"
    assert found.over_refusal.rank == 2  # three are planted: setting two of them together goes far enough for all
    full = at_full_strength(found.tradeoff)
    gone, lost = full["subspace"]
    assert gone > 0.9
    assert lost < 0.1
    gone, lost = full["one direction"]
    assert gone < 0.1
    assert lost > 0.9
    assert found.tradeoff is not None
    held = {point.way for point in found.tradeoff.points if point.holds}
    assert "subspace" in held
    assert "one direction" not in held
    assert all(angle > 45 for angle in found.tradeoff.angles)
