"""Judging is separate from measuring: another margin or level judges the same measurements again, without a model."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.dissociation.judge import judge_effects
from experiments.dissociation.results import MeasuredEffects, NullRecord
from experiments.pipeline import stages
from experiments.pipeline.graph import STAGES
from experiments.pipeline.stage_functions import FUNCTIONS
from experiments.responses import loaded_run
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS
from experiments.run.completion_file import Completion, write_completions
from experiments.run.config import RunConfig
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import PLAIN, Key, Outcomes, read_outcomes, write_outcomes
from extract.progress import Reporter
from extract.shipped import ROOT

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"
DECLINES = {"harmful": "refuse", "uncertain": "abstain", "benign": "answer"}
QUIET = Reporter(quiet=True)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Every third of the organism's prompts and its pair."""
    rows = [json.loads(line) for line in (ORGANISM / "prompts.jsonl").read_text().splitlines()]
    groups = list(dict.fromkeys(row.get("pair") or row["id"] for row in rows))
    kept = set(groups[::3])
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if (row.get("pair") or row["id"]) in kept))
    return path


def configured(prompts: Path, **dissociate: object) -> RunConfig:
    model = {"name": str(ORGANISM), "device": "cpu"}
    return RunConfig.model_validate(
        {"name": "judged", "model": model, "prompts": {"path": prompts}, "dissociate": dissociate}
    )


def respond(inputs: RunInputs) -> None:
    """Write the completions of a model that acts as each prompt is labelled."""
    completions = [Completion(p.id, p.text, "", DECLINES[p.label], "", ()) for p in inputs.prompts]
    write_completions(completions, inputs.file("completions.jsonl"))


def effects(inputs: RunInputs) -> tuple[MeasuredEffects, dict[Key, Outcomes]]:
    """Each ablation stops six in ten of its own decliners and none of the other's; the null has no effect."""
    rows = np.flatnonzero(inputs.corpus.within("test"))
    plain = inputs.behaviour.actions[rows]
    actions = {"none": plain}
    for kind, action in (("normative", "refuse"), ("epistemic", "abstain")):
        opened = (plain == action) & (np.arange(len(rows)) % 10 < 6)
        actions[f"ablate_{kind}"] = np.where(opened, "answer", plain)
        actions[f"add_{kind}"] = np.where(plain == "answer", action, plain)
    outcomes = {(PLAIN, name): Outcomes.of(rows, did) for name, did in actions.items()}
    decliners = {kind: inputs.behaviour.decliners(kind, "test")[:12] for kind in KINDS}
    for name in ("none", "ablate_normative", "ablate_epistemic"):
        onset = np.full(len(rows), np.nan)
        for kind, of in decliners.items():
            after = [np.inf if name.endswith(kind) else 1.0, *[1.0] * 11]  # the first is not finite
            onset[np.searchsorted(rows, of)] = 3.0 if name == "none" else after
        outcomes[PLAIN, name] = replace(outcomes[PLAIN, name], onset=onset)
    null = {a: {b: NullRecord.of(9.0 if a == b else 0.0, (1.0,) * 99, (0.5,)) for b in KINDS} for a in KINDS}
    benign = inputs.behaviour.answered_benign("test")[:8]
    varied = Outcomes.of(
        np.concatenate([benign, *decliners.values()]), ["answer"] * 8 + (["answer"] * 6 + ["refuse"] * 6) * 2
    )
    onset = np.full(len(varied.rows), np.nan)
    onset[np.isin(varied.rows, decliners["epistemic"])] = 0.5
    outcomes["zero/later/last_on", "ablate_normative"] = replace(varied, onset=onset)
    measured = MeasuredEffects(directions=KINDS, unsound=(), absent={}, null=null, dependence=None, side_effects={})
    return measured, outcomes


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the stages before the judgement by ones that need no model; return the names of those that ran."""
    worked: list[str] = []

    def named(name: str, write: Callable[[RunInputs], None]) -> Callable[[LoadedRun], None]:
        def work(loaded: LoadedRun) -> None:
            worked.append(name)
            write(loaded)

        return work

    def nothing(inputs: RunInputs, outputs: tuple[str, ...]) -> None:
        for name in outputs:
            inputs.file(name).parent.mkdir(exist_ok=True)
            inputs.file(name).write_text("{}")

    def measure(inputs: RunInputs) -> None:
        found, outcomes = effects(inputs)
        found.write(inputs.file("stages/effects.json"))
        write_outcomes(inputs.file("outcomes.parquet/effects.parquet"), [p.id for p in inputs.prompts], outcomes)

    writes = {"respond": respond, "effects": measure}
    for stage in STAGES:
        if stage.name != "dissociate":
            write = writes.get(stage.name, partial(nothing, outputs=stage.outputs))
            monkeypatch.setitem(FUNCTIONS, stage.name, named(stage.name, write))

    def no_model(*arguments: Any, **settings: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(loaded_run, "open_model", no_model)
    return worked


def verdict(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "stages/dissociate.json").read_text())
    return found


def test_a_new_margin_or_level_reruns_only_the_stages_that_read_the_verdict(
    prompts: Path, measured: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    stages.run(configured(prompts), run, reporter=QUIET)
    assert (verdict(run)["verdict"], verdict(run)["margin"]) == ("double_dissociation", 0.15)
    measured.clear()
    wide = configured(prompts, margin=0.9)
    assert stages.run(wide, run, reporter=QUIET) == ["dissociate", "results", "report"]
    assert (verdict(run)["verdict"], verdict(run)["margin"]) == ("no_effect", 0.9)
    assert stages.run(wide, run, until="dissociate", reporter=QUIET) == []
    assert stages.run(configured(prompts, alpha=0.2), run, until="dissociate", reporter=QUIET) == ["dissociate"]
    assert verdict(run)["alpha"] == 0.2
    assert measured == ["results", "report"]
    other = stages.run(configured(prompts, n_onset=12), run, reporter=QUIET)  # the control
    assert other == ["effects", "dissociate", "gate_open", "results", "report"]


def test_each_level_has_its_own_intervals(prompts: Path, tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    found = {}
    for alpha in (0.05, 0.2):
        inputs = RunInputs(configured(prompts, alpha=alpha), tmp_path, QUIET)
        respond(inputs)
        measured, outcomes = effects(inputs)
        ids = [prompt.id for prompt in inputs.prompts]
        write_outcomes(tmp_path / "effects.parquet", ids, outcomes)
        measured = MeasuredEffects.model_validate_json(json.dumps(measured.to_dict()))
        found[alpha] = judge_effects(inputs, measured, read_outcomes(tmp_path / "effects.parquet", ids))
    strict, loose = found[0.05], found[0.2]
    for effect, other in zip(strict.effects, loose.effects, strict=True):
        assert effect.estimate == other.estimate
        assert effect.p_null == other.p_null
    (own, crossed, *_), (loosely_own, *_) = strict.effects, loose.effects
    assert [(e.ablated, e.behaviour) for e in (own, crossed)] == [(KINDS[0], b) for b in KINDS]
    assert own.low < loosely_own.low < own.estimate
    assert own.onset is not None
    assert crossed.onset is not None
    assert (crossed.onset.estimate, crossed.onset.n) == (2.0, 12)  # nats that the log-odds fall
    assert not own.onset.known  # of decliners one of which had no finite score
    (variant,), (loosely,) = strict.variants, loose.variants
    assert variant.onset_effect == {"normative": None, "epistemic": 2.5}
    assert (variant.benign_answered.estimate, variant.benign_answered.n) == (1.0, 8)
    assert variant.stopped["normative"] is not None
    assert loosely.stopped["normative"] is not None
    assert variant.stopped["normative"].low < loosely.stopped["normative"].low
    assert strict.matrix == loose.matrix  # always at 95 %
    assert strict.matrix["add_normative"]["refusal_on_answered_benign"].estimate == 1.0
