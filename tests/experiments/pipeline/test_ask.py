"""What is not asked runs no model, and says so in the results."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.pipeline.cost import steps
from experiments.pipeline.graph import hash_inputs, stages_of
from experiments.pipeline.stages import run
from experiments.report.results import RunResults
from experiments.run.config import QUESTIONS, RunConfig, load_config
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from tests.experiments.pipeline.test_cost import SIZE


def asking(*questions: str) -> RunConfig:
    return load_config("configs/quickstart.yaml", [f"ask=[{', '.join(questions)}]"])


def test_each_question_has_steps_and_stages_of_its_own() -> None:
    def named(*questions: str) -> set[str]:
        return {step.name for step in steps(asking(*questions), replace(SIZE, in_context=3), "report")}

    def hashed(*questions: str) -> dict[str, str]:
        config = asking(*questions)
        return hash_inputs(config, stages_of(config), "prompts", "model")

    assert named() < named(*QUESTIONS)
    assert "plain completions" in named()
    for question, stage in zip(QUESTIONS, ("effects", "trigger_measures", "steer"), strict=True):
        assert named() < named(question) < named(*QUESTIONS)
        before, after = hashed(), hashed(question)
        assert before[stage] != after[stage]
        others = {"extract", "respond", "probe", "effects", "trigger_measures", "steer"} - {stage}
        if question == "one-or-two":  # an epistemic dial may write what is elicited for it
            others.remove("steer")
        for same in others:
            assert before[same] == after[same]
    with pytest.raises(UserError, match="one-or-two"):
        asking("three")


@pytest.mark.slow
def test_a_run_that_is_asked_nothing_has_the_rates_and_what_is_read(tmp_path: Path, two_knobs: ChatModel) -> None:
    given = ["ask=[]", "prompts.limit=120", "generate.limit=90", "extract.layers=[2, 4]"]
    config = load_config("configs/quickstart.yaml", [*given, "extract.positions=[post_last]"])
    run(config, tmp_path, model=two_knobs)
    results = RunResults.read(tmp_path / "results.json")
    assert results.ask == ()
    assert results.sites["normative"].auroc > 0.9
    assert results.only_read > 0
    assert results.rates.before == results.rates.after
    assert (results.dissociation.verdict, results.dissociation.reasons) == ("not_applicable", ("not asked",))
    assert not results.dials
    assert not results.dials_absent
    assert results.triggers.patching.to_dict()["reason"] == "not asked"
