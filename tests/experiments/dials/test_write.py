"""Writers of the configured dials, and the errors where they cannot be built."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials.write import dial_writers, onset_bias_writer
from experiments.run.behaviour import MIN_BASELINE
from experiments.run.completion_file import Completion
from experiments.run.config import SteerConfig
from extract.errors import UserError
from probes.direction import Direction, Locus
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.direction_file import save_directions
from steering.writer import Writer

LATER = {2: (4.0, -2.0), 3: (5.0, -3.0)}
N = 3 * MIN_BASELINE
OPENS = {"refuse": 1, "abstain": 2, "answer": 3}


def direction(name: str) -> Direction:
    return Direction(name, np.eye(8, dtype=np.float32)[0], Locus("resid_post", 1, "post_last"), 3.0, -1.0, {}, LATER)


@pytest.fixture
def context(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Make a run whose model did `actions` to N prompts, each action with an opening of its own."""

    def made(actions: list[str], extracted: tuple[int, ...] = (0, 1, 2, 3), **steer: Any) -> Any:
        said = [Completion(str(i), "", "", a, "", (7, OPENS[a])) for i, a in enumerate(actions)]
        save_directions([direction(f"{kind}_write") for kind in ("normative", "epistemic")], tmp_path / "directions")
        return SimpleNamespace(
            config=SimpleNamespace(steer=SteerConfig(**steer)),
            model=SimpleNamespace(n_layers=4),
            store=SimpleNamespace(layers=extracted),
            file=lambda name: tmp_path / name.removesuffix(".safetensors"),
            completions=said,
            corpus=SimpleNamespace(within=lambda *parts: np.ones(len(actions), dtype=bool), rated=True),
            behaviour=SimpleNamespace(did=lambda action: np.array(actions) == action),
        )

    return made


BOTH = ["refuse"] * MIN_BASELINE + ["abstain"] * MIN_BASELINE + ["answer"] * MIN_BASELINE


@pytest.mark.parametrize(
    ("steer", "actuator"),
    [({}, Affine()), ({"strength": 0.5}, Affine(0.5)), ({"actuator": "addition", "strength": 2}, Addition(2.0)),
     ({"actuator": "clamp"}, Clamp())],
)  # fmt: skip
def test_dials_write_along_the_runs_directions_as_configured(context: Any, steer: dict, actuator: object) -> None:
    found = dial_writers(context(BOTH, **steer))
    assert list(found) == ["normative", "epistemic"]
    for kind, writer in found.items():
        assert writer.direction.name == f"{kind}_write"
        assert (writer.actuator, writer.steps, writer.later) == (actuator, None, False)


def test_steps_and_later_layers_are_handed_on(context: Any) -> None:
    writer = dial_writers(context(BOTH, steps=1, layers="later"))["normative"]
    assert (writer.steps, writer.later, writer.direction.later_means) == (1, True, LATER)
    with pytest.raises(UserError, match=r"steer.layers is 'later', but activations of layer 3 are not extracted"):
        dial_writers(context(BOTH, extracted=(0, 1, 2), layers="later"))


def test_an_onset_bias_takes_the_openings_of_each_way_of_declining(context: Any) -> None:
    found = dial_writers(context(BOTH, actuator="onset_bias", steps=3))
    assert found["normative"] == Writer(None, OnsetBias(((7, 1),)), 3)
    assert found["epistemic"] == Writer(None, OnsetBias(((7, 2),)), 3)
    strong = dial_writers(context(BOTH, actuator="onset_bias", strength=5))["normative"].actuator
    assert strong == replace(OnsetBias(((7, 1),)), strength=5.0)


def test_a_way_of_declining_too_seldom_seen_gets_no_onset_bias(context: Any) -> None:
    few = ["refuse"] * MIN_BASELINE + ["abstain"] * (MIN_BASELINE - 1) + ["answer"] * MIN_BASELINE
    assert list(dial_writers(context(few, actuator="onset_bias"))) == ["normative"]


def test_a_model_that_never_declines_has_no_openings_to_bias(context: Any) -> None:
    said = (r"steer.actuator is onset_bias, but the model does not refuse often enough \(0 times on train and "
            r"validation\); the model does not abstain often enough .*; use affine, which needs no "
            r"openings")  # fmt: skip
    with pytest.raises(UserError, match=said):
        dial_writers(context(["answer"] * N, actuator="onset_bias"))
    assert set(dial_writers(context(["answer"] * N))) == {"normative", "epistemic"}  # the control: directions need none


def test_of_openings_that_begin_alike_the_shorter_is_kept() -> None:
    writer = onset_bias_writer(SteerConfig(actuator="onset_bias"), [(7, 6), (7, 6, 1), (7, 9)])
    assert writer.actuator == OnsetBias(((7, 6), (7, 9)))
