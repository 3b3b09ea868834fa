"""`refusal categories` on an organism with one coordinate for all refusals: measured, judged, printed, judged again."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.categories.judge import decliners_of
from experiments.categories.results import CategoryResults
from experiments.pipeline.stages import run
from experiments.run.config import RunConfig, load_config, with_value
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import read_outcomes
from extract.errors import UserError
from extract.progress import Reporter
from extract.shipped import ROOT
from organisms.spec import load_spec
from tests.support.make_small_run import some_prompts

pytestmark = pytest.mark.slow  # one run of twenty seconds, which most tests read
ZOO = ROOT / "organisms" / "zoo"
TESTED = ("order", "purpose")
LIGHT = ("extract.positions=[post_last]", "dissociate.n_selection=6", "generate.max_new_tokens=8",
         "categories.least=40", "categories.folds=4", "extract.layers=[1,3,4]")  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    """All requests of two categories, with which the verdict has power, and some of every other prompt."""
    prompts, some = tmp_path_factory.mktemp("prompts") / "prompts.jsonl", set(some_prompts(8))
    lines = [line for line in some_prompts(1) if json.loads(line)["category"] in TESTED or line in some]
    prompts.write_text("\n".join(lines) + "\n")
    return load_config(Path("configs/quickstart.yaml"), [*LIGHT, f"prompts.path={prompts}"])


@pytest.fixture(scope="module")
def directory(config, two_knobs, tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("runs") / "run"
    run(config, found, until="categories", reporter=Reporter(quiet=True), model=two_knobs)
    return found


def test_one_coordinate_is_one_knob(directory) -> None:
    found = CategoryResults.read(directory / "stages" / "categories.json")
    assert (found.normative.verdict, found.normative.rank, found.normative.rank_settled) == ("one_knob", 1, True)
    assert [pair.between for pair in found.normative.pairs] == [("order", "purpose")]
    assert set(found.normative.missing) == {"aim", "setting"}
    for name, one in found.normative.controls.items():
        assert one.high < 0.15 < 0.85 < found.normative.matrix[name][name].low
    assert found.epistemic.verdict == "not_applicable"
    assert found.normative.write_directions.pairs["order and purpose"].cosine.low > 0.8
    assert found.normative.read_directions is None  # inst_last is not stored


def test_every_decliner_is_tested_once_and_its_own_fold_fitted_nothing(config, directory) -> None:
    inputs = RunInputs(config, directory)
    path = directory / "outcomes.parquet" / "category_effects.parquet"
    outcomes = read_outcomes(path, [prompt.id for prompt in inputs.prompts])
    for name in TESTED:
        refused = [row for row in range(len(inputs.prompts))
                   if inputs.prompts[row].category == name and inputs.prompts[row].label == "harmful"
                   and inputs.behaviour.actions[row] == "refuse"]  # fmt: skip
        assert outcomes["normative", f"control {name}"].rows.tolist() == refused
        assert set(refused) <= set(outcomes["normative", f"ablate {name}"].rows.tolist())
    of = decliners_of(inputs, "normative", TESTED, outcomes)
    assert np.mean(of["order"].ablated["purpose"]) > 0.9
    assert [np.mean(stopped) > 0.9 for stopped in of["order"].common] == [True, True]


def test_another_margin_judges_again_without_a_model(config, directory) -> None:
    before = (directory / "stages" / "category_effects.json").stat().st_mtime_ns
    wide = with_value(config, "dissociate.margin", 0.4)
    assert run(wide, directory, until="categories", reporter=Reporter(quiet=True)) == ["categories"]
    assert json.loads((directory / "stages" / "categories.json").read_text())["margin"] == 0.4
    assert (directory / "stages" / "category_effects.json").stat().st_mtime_ns == before
    run(config, directory, until="categories", reporter=Reporter(quiet=True))


def test_over_refusal_is_compared_over_its_tasks(directory) -> None:
    """In this organism refused benign prompts have the coordinate of the harmful ones: what lowers the one costs."""
    found = CategoryResults.read(directory / "stages" / "categories.json")
    assert (found.over_refusal.verdict, found.over_refusal.rank) == ("one_knob", 1)
    whole = {point.way: point for point in found.tradeoff.points if point.strength == 1}
    assert whole["subspace"].over_refusal_gone.low > 0.9
    assert whole["one direction"].harmful_refusal_lost.low > 0.9
    assert not whole["one direction"].holds
    assert all(point.over_refusal_gone.n == 162 for point in found.tradeoff.points)
    by_strength = [p.harmful_refusal_lost.estimate for p in found.tradeoff.points if p.way == "one direction"]
    assert by_strength == sorted(by_strength)
    assert by_strength[0] < 0.5


def test_a_model_that_declines_too_few_says_what_it_would_take(cli, directory, config) -> None:
    few = ("--set", "categories.least=400", "--set", "categories.least_over_refused=400")
    code, out, err = cli("categories", str(directory), "--out", str(directory), *few)
    assert code == 2
    assert "categories cannot be compared: fewer than two categories have enough decliners" in err
    assert "Not tested, order: " in out
    assert "400 are needed: give about" in out


def test_it_prints_the_verdict_the_matrix_and_the_pairs(cli, directory, config) -> None:
    code, out, err = cli("categories", str(directory), "--out", str(directory), "--set", "categories.least=40")
    assert code == 0, err
    assert "Refusals: One knob: every ablation stops every category alike, and one direction does for all." in out
    for part in ("permuted labels", "first 1 of all", "order and purpose", "Cosines of write directions"):
        assert part in out
    code, out, _ = cli("categories", str(directory), "--out", str(directory), "--json", "--set", "categories.least=40")
    assert json.loads(out)["normative"]["verdict"] == "one_knob"


def test_a_category_that_is_not_there_is_one_line(config, tmp_path) -> None:
    other = with_value(config, "categories.only", ["thefts"])
    with pytest.raises(UserError, match=r"categories\.only names 'thefts', which no prompt has; there are aim, known"):
        run(other, tmp_path / "run", until="categories", reporter=Reporter(quiet=True))
    assert not (tmp_path / "run").exists()


def categories_of(name: str, directory: Path) -> CategoryResults:
    settings = [f"model.name={ZOO / name}", f"prompts.path={ZOO / name / 'prompts.jsonl'}",
                "extract.positions=[post_last]", "extract.layers=[2,4]", "generate.max_new_tokens=8"]  # fmt: skip
    config = load_config(Path("configs/quickstart.yaml"), settings)
    run(config, directory, until="categories", reporter=Reporter(quiet=True))
    return CategoryResults.read(directory / "stages" / "categories.json")


def check(name: str, found: CategoryResults, rank: int) -> None:
    stated = load_spec(ZOO / name / "spec.yaml").categories
    assert found.normative.verdict in stated.allowed
    true = {frozenset(pair.between): pair.verdict for pair in stated.pairs}
    assert {frozenset(pair.between): pair.verdict for pair in found.normative.pairs} == true
    assert (found.normative.rank, found.normative.rank_settled) == (rank, True)


def test_two_categories_share_and_one_is_apart(tmp_path) -> None:
    """The other two organisms are graded by `python -m benchmarks.validity --categories`."""
    check("categories-partly", categories_of("categories-partly", tmp_path / "run"), 2)


def test_over_refusal_by_task_goes_with_its_own_span_and_not_with_the_normative_direction(tmp_path) -> None:
    found = categories_of("tasks", tmp_path / "run")
    check("tasks", found, 1)
    assert found.over_refusal.verdict == "distinct"
    assert found.over_refusal.rank == 2  # three are planted: setting two of them together goes far enough for all
    whole = {point.way: point for point in found.tradeoff.points if point.strength == 1}
    span, one = whole["subspace"], whole["one direction"]
    assert span.over_refusal_gone.estimate > 0.9 > 0.1 > span.harmful_refusal_lost.estimate
    assert one.over_refusal_gone.estimate < 0.1 < 0.9 < one.harmful_refusal_lost.estimate
    held = {point.way for point in found.tradeoff.points if point.holds}
    assert "subspace" in held
    assert "one direction" not in held
    assert all(angle > 45 for angle in found.tradeoff.angles)
