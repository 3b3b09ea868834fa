"""Real runs of Inspect and of lm-evaluation-harness: their figures are those of `refusal score` on their logs."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import eval as run
from inspect_ai import score as score_again
from inspect_ai._util.registry import registry_lookup
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score

from extract.atomic_write import write_jsonl
from extract.errors import UserError
from extract.prompts.prompt import ALL_LABELS, load_prompts, prompt_row
from extract.shipped import ROOT
from refusal_probes.inspect_tasks import joint, joint_scorer
from scoring.case import cases_of
from scoring.evaluation.suite import load_suite, prompts_of
from scoring.rates import RATES
from scoring.score_file import score_file
from tests.conftest import ORGANISM

pytestmark = pytest.mark.slow

SAID = ("I can't help with that request.", "I don't know who that is.", "Paris is the capital of France.",
        "Which of the two do you mean?", "")  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A suite of 60 prompts: twelve of each label, and twelve questions with a known answer."""
    folder, core = tmp_path_factory.mktemp("suite"), load_prompts(ROOT / "configs" / "prompts" / "core.jsonl")
    kinds = [[one for one in core if one.label == label and not one.answer][:12] for label in ALL_LABELS]
    kinds.append([one for one in core if one.answer][:12])
    write_jsonl(folder / "own.jsonl", [prompt_row(one) for kind in kinds for one in kind])
    (folder / "own.yaml").write_text(f"path: {folder / 'own.jsonl'}\n")
    return str(folder / "own.yaml")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, suite: str) -> EvalLog:
    return asked(tmp_path_factory.mktemp("inspect"), joint(suite), epochs=2)


def asked(folder: Path, task: Any, **given: Any) -> EvalLog:
    """Run a task with Inspect's mock model, which says five things in turn, each twice."""
    n = len(task.dataset) * given.get("epochs", 1)
    model = get_model("mockllm/model", custom_outputs=[said(SAID[i // 2 % len(SAID)]) for i in range(n)])
    return run(task, model=model, log_dir=str(folder), display="none", **given)[0]


def said(text: str) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it counts with a file of the web
    return output


def metrics(log: EvalLog) -> dict[str, float]:
    assert log.status == "success", log.error
    assert log.results is not None
    return {name: one.value for name, one in log.results.scores[0].metrics.items()}


def test_a_filtered_answer_is_a_refusal_by_the_filter(suite: str, tmp_path: Path) -> None:
    outputs = [said("Sorry, we stopped this answer.") for _ in range(60)]
    for output in outputs[::2]:
        output.choices[0].stop_reason = "content_filter"
    ran = run(joint(suite), model=get_model("mockllm/model", custom_outputs=outputs), log_dir=str(tmp_path),
              display="none")[0]  # fmt: skip
    found, card = metrics(ran), score_file(ran.location, tmp_path)
    assert found["refused_by_filter"] == card.refused_by["filter"] == 30
    assert ran.samples is not None
    scores = [one.scores["joint"] for one in ran.samples if one.scores]
    assert sum("the provider's filter ended it, after 5 words" in (one.explanation or "") for one in scores) == 30


def test_its_figures_are_those_of_refusal_score(log: EvalLog, tmp_path: Path) -> None:
    card = score_file(log.location, tmp_path)
    assert card.rates is not None
    found = metrics(log)
    for name in RATES:
        estimate = card.rates.of(name)
        limits = [found[name], found[f"{name}_low"], found[f"{name}_high"]]
        assert limits == pytest.approx([estimate.estimate, estimate.low, estimate.high])
        assert estimate.n
    score = card.right_action.score
    limits = [found[f"right_action_score{end}"] for end in ("", "_low", "_high")]
    assert limits == pytest.approx([score.estimate, score.low, score.high])
    assert card.penalty is not None
    at_targets = {name for name in found if name.startswith("score_at_") and name.count("_") == 2}
    assert at_targets == {f"score_at_{target}" for target in card.penalty.scores}
    assert found["score_at_0.75"] == pytest.approx(card.penalty.scores["0.75"].estimate)
    assert found["unjudged"] == card.actions["unjudged"] > 0
    rows = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    of_log = {(str(sample.id), str(sample.epoch)): one(sample.scores).answer for sample in log.samples}
    assert {(row["id"], str(row["sample"])): row["action"] for row in rows} == of_log


def one(scores: dict[str, Score] | None) -> Score:
    return scores["joint"]


def test_a_score_says_what_was_a_mistake_and_leaves_the_rest_open(log: EvalLog) -> None:
    seen = set()
    for sample in log.samples or ():
        score, label = one(sample.scores), sample.metadata["label"]
        assert isinstance(score.value, dict)
        for name, (own, counts) in RATES.items():
            value = float(score.value[name])  # type: ignore[arg-type]
            if label != own or score.answer is None:
                assert math.isnan(value)
            else:
                assert value == (score.answer in counts)
        seen.add((score.reason, score.answer))
        assert score.value["unjudged"] == (score.answer is None)
    assert ("refusal", "refuse") in seen
    assert ("grader_failed", None) in seen  # an empty answer: not one that did not refuse


def test_a_log_is_scored_again_by_the_scorer(log: EvalLog) -> None:
    again = score_again(read_eval_log(log.location), joint_scorer(), action="overwrite", display="none")
    assert metrics(again) == pytest.approx(metrics(log), nan_ok=True)


def test_prompts_of_one_group_stay_one_group(suite: str) -> None:
    cases = cases_of(prompts_of(load_suite(suite)))
    groups = {str(sample.id): sample.metadata["group"] for sample in joint(suite).dataset if sample.metadata}
    assert groups == {name: case.group for name, case in cases.items()}
    assert len(set(groups.values())) < len(groups)


def test_inspect_finds_the_task_by_name_and_a_wrong_suite_is_named() -> None:
    assert registry_lookup("task", "refusal_probes/joint") is not None
    assert registry_lookup("scorer", "refusal_probes/joint") is not None
    with pytest.raises(UserError, match="did you mean core"):
        joint(suite="cor")


def test_inspects_own_limit_takes_some_of_every_label() -> None:
    first = joint().dataset[:40]
    labels = [sample.metadata["label"] for sample in first]  # type: ignore[index, union-attr]
    assert set(labels) == {"benign", "harmful", "uncertain", "dual_use"}
    assert [sample.id for sample in joint().dataset[:40]] == [sample.id for sample in first]


@pytest.mark.parametrize("option", [{"state_target": 0.75}, {"ask_confidence": True}])
def test_more_is_asked_where_the_answer_is_known(suite: str, option: dict[str, Any]) -> None:
    plain, told = list(joint(suite).dataset), list(joint(suite, **option).dataset)
    words = [[[turn.text for turn in sample.input] for sample in samples] for samples in (plain, told)]
    changed = [sample.metadata for sample, before, after in zip(told, *words, strict=True) if before != after]
    assert len(changed) == 12
    assert all(metadata and "answer" in metadata for metadata in changed)


def test_a_local_model_in_inspect(tmp_path: Path) -> None:
    suite = tmp_path / "own.yaml"
    suite.write_text(f"path: {ORGANISM / 'prompts.jsonl'}\nlimit: 20\n")
    model = get_model("hf/two-knobs", model_path=str(ORGANISM))
    ended = run(joint(suite=str(suite)), model=model, log_dir=str(tmp_path), display="none", max_tokens=24, top_k=1)[0]
    card = score_file(ended.location, tmp_path / "scores")
    assert card.rates is not None
    found = metrics(ended)
    rates = {name: card.rates.of(name).estimate for name in RATES}
    assert {name: found[name] for name in RATES} == pytest.approx(rates, nan_ok=True)
    assert found["missed_harm"] < 0.5  # it refuses what it was trained to refuse


def test_its_rates_are_those_of_refusal_score(tmp_path: Path) -> None:
    suite = tmp_path / "own.yaml"
    suite.write_text(f"path: {ORGANISM / 'prompts.jsonl'}\nlimit: 12\n")
    words = [
        sys.executable, "-m", "lm_eval", "run", "--model", "hf",
        "--model_args", f"pretrained={ORGANISM},dtype=float32",
        "--include_path", str(ROOT / "configs" / "lm_eval"), "--tasks", "refusal_joint", "--apply_chat_template",
        "--log_samples", "--output_path", str(tmp_path / "out"), "--metadata", json.dumps({"suite": str(suite)}),
        "--gen_kwargs", "max_gen_toks=24", "--batch_size", "12", "--device", "cpu",
    ]  # fmt: skip
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(words, cwd=tmp_path, env=offline, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    (results,) = (tmp_path / "out").rglob("results_*.json")
    (samples,) = (tmp_path / "out").rglob("samples_refusal_joint_*.jsonl")
    found = json.loads(results.read_text())["results"]["refusal_joint"]
    card = score_file(samples, tmp_path / "scores")
    assert card.rates is not None
    for name in RATES:
        estimate = card.rates.of(name)
        assert found[f"{name},none"] == pytest.approx(estimate.estimate)
        assert estimate.n == 12
    assert found["missed_harm,none"] < 0.5  # it refuses what it was trained to refuse
    groups = [json.loads(line)["doc"]["group"] for line in samples.read_text().splitlines()]
    assert len(set(groups)) < len(groups)  # minimal pairs are no independent prompts
