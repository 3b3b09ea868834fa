"""`judge: auto`: local where it takes little of a run's time and is there, else rules; chosen once."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from experiments.pipeline import cost, graph
from experiments.pipeline import plan as module
from experiments.pipeline.cost import JUDGING_STEP
from experiments.pipeline.graph import chosen_judge, hash_inputs, stages_of
from experiments.pipeline.machine import A100, Footprint
from experiments.pipeline.plan import AFFORDED, RunEstimate, afforded_judge, estimate, judging_share
from experiments.pipeline.stages import choose_judge
from experiments.run.config import AUTO, RunConfig, load_config
from experiments.sweep.grid import SweepConfig, cells_of
from extract.errors import UserError
from extract.progress import Reporter
from judging.judge_by_name import open_judge

QUIET = Reporter(quiet=True)
QUICK = "configs/quickstart.yaml"


def config(**more: Any) -> RunConfig:
    return load_config(QUICK).model_copy(update={"judge": AUTO, **more})


@dataclass(frozen=True)
class Lines(Reporter):
    """A reporter that keeps what it says."""

    said: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.mark.slow
def test_judging_is_a_step_of_the_plan_of_local_alone() -> None:
    steps = {judge: {step.name for step in planned(judge).plan().steps} for judge in ("rules", "local")}
    assert steps["local"] - steps["rules"] == {JUDGING_STEP}
    [step] = [step for step in planned("local").plan().steps if step.name == JUDGING_STEP]
    others = [other for other in planned("local").plan().steps if other is not step]
    usual = sum(s.completions if s.usual_completions is None else s.usual_completions for s in others)
    assert 0 < step.products < usual * 400 * 3.3e8
    assert planned("local").plan(["respond", "effects", "steer", "elicited"]).steps[-1].products < step.products


def planned(judge: str) -> RunEstimate:
    return replace(estimate(config(judge=judge), "report", QUIET), machine=A100)


@pytest.mark.parametrize(
    ("of_model", "model_width", "machine_width", "slow", "flops"),
    [
        (True, 4, 4, frozenset(), 2e12),  # measured in float32, and bfloat16 is twice as fast
        (True, 4, 4, {torch.bfloat16}, 1e12),
        (True, 2, 4, frozenset(), 1e12),  # measured in 16 bits
        (False, 4, 2, frozenset(), 1e12),  # a GPU's data sheet
        (False, 2, 4, frozenset(), 2e12),
    ],
)
def test_its_products_are_in_bfloat16(
    of_model: bool, model_width: int, machine_width: int, slow: set[torch.dtype], flops: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cost, "slow_types", lambda: slow)
    model = Footprint(10**6, model_width, 4, 64, 256, 64, 1000)
    machine = replace(A100, flops=1e12, width=machine_width, of_model=of_model)
    step, used = cost.Step(JUDGING_STEP, products=4e12), replace(cost.FAST, products=1.0)
    assert cost.seconds([step], model, machine, cost.Batches(64, 8, 20.0, 24), used) == 4e12 / flops


@pytest.mark.slow
def test_the_share_falls_with_the_model_s_size(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for times in (1, 10_000):
        model = replace(planned("local").model, parameters=times * planned("local").model.parameters)
        monkeypatch.setattr(module, "estimate", lambda given, *_, m=model: replace(planned(given.judge), model=m))
        shares.append(judging_share(config(), "report", QUIET))
    assert 0 < shares[1] < shares[0] / 10 < 0.1


@pytest.mark.parametrize(("share", "judge"), [(AFFORDED, "local"), (1.01 * AFFORDED, "rules")])
def test_local_is_chosen_up_to_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch, share: float, judge: str) -> None:
    monkeypatch.setattr(module, "judging_share", lambda *_: share)
    lines = Lines(quiet=True)
    assert afforded_judge(config(), "report", lines) == judge
    assert lines.said == [f"the judge is {judge}; local takes about 10% of the time"]


def test_a_run_keeps_its_judge_and_a_stage_without_answers_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_judge(load_config(QUICK), tmp_path, "report", QUIET).judge == "rules"  # it names one
    model = tmp_path / "model.gguf"
    monkeypatch.setattr(graph, "known_model", lambda _: SimpleNamespace(path=model))
    assert chosen_judge(config(), tmp_path, "report") == "rules"  # what local needs is not here
    model.touch()
    assert chosen_judge(config(), tmp_path, "report") is None
    assert chosen_judge(config(), tmp_path, "extract") == AUTO  # none is needed, and none is fixed
    assert choose_judge(config(), tmp_path, "report", QUIET, alone=False).judge == "rules"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config().model_dump(mode="json"), "judge": "local"}))
    assert choose_judge(config(), tmp_path, "report", QUIET).judge == "local"
    assert choose_judge(config(), tmp_path, "extract", QUIET, alone=False).judge == "local"
    (tmp_path / "config.yaml").write_text("name: x\nof_another_version: 1\n")
    assert chosen_judge(config(), tmp_path, "report") is None


def test_the_judge_is_an_input_of_the_answers() -> None:
    by = {name: hash_inputs(config(judge=name), stages_of(config()), "source") for name in ("rules", "local")}
    changed = {stage for stage in by["rules"] if by["rules"][stage] != by["local"][stage]}
    assert "respond" in changed
    assert "extract" not in changed


def test_cells_of_a_sweep_have_one_judge(tmp_path: Path) -> None:
    path = tmp_path / "auto.yaml"
    path.write_text(Path(QUICK).read_text().replace("judge: rules", "judge: auto"))
    sweep = SweepConfig(name="s", config=path, keys={"seed": (0, 1)})
    cells = cells_of(sweep, tmp_path / "sweep.yaml", load_config)
    assert [cell.config.judge for cell in cells] == ["rules", "rules"]
    assert all("judge=rules" in cell.arguments(None) for cell in cells)


def test_auto_is_a_judge_of_runs_alone() -> None:
    with pytest.raises(UserError, match="no judge named 'auto'"):
        open_judge(AUTO)
