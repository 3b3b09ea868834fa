"""Benign prompts refused by another mechanism than harmful ones: the direction within labels gives way."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.pipeline.stages import run
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from extract.progress import Reporter
from extract.shipped import ROOT
from steering.direction_file import load_directions

MODEL = ROOT / "organisms" / "zoo" / "instructed"


@pytest.mark.slow
def test_the_direction_of_harmful_refusals_is_found_where_benign_ones_have_another(tmp_path: Path) -> None:
    settings = [f"model.name={MODEL}", f"prompts.path={MODEL / 'prompts.jsonl'}", "dissociate.positions=[post_last]",
                "extract.layers=[1, 3]", "dissociate.n_selection=8"]  # fmt: skip
    config = load_config(ROOT / "configs" / "quickstart.yaml", settings)
    run(config, tmp_path / "run", until="probe", reporter=Reporter(quiet=True))
    record = json.loads((tmp_path / "run" / "stages" / "probe.json").read_text())["writes"]["normative"]
    assert record["within_label"] is False
    assert record["locus"]["layer"] == 3
    assert RunInputs(config, tmp_path / "run").behaviour.by_label == {"normative"}
    truth = json.loads((MODEL / "truth.json").read_text())["variables"]
    planted = {variable["name"]: np.array(variable["direction"]) for variable in truth}
    found = load_directions(tmp_path / "run" / "directions.safetensors")["normative_write"].vector
    unit = found / np.linalg.norm(found)
    assert abs(unit @ planted["policy"]) > 0.85
    assert abs(unit @ planted["instructed"]) < 0.3
