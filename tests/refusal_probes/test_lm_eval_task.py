"""A real run of lm-evaluation-harness with the shipped task, on a model of the zoo."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from extract.shipped import ROOT
from scoring.rates import RATES
from scoring.score_file import score_file

TWO_KNOBS = ROOT / "organisms" / "zoo" / "two-knobs"


@pytest.mark.slow
def test_its_rates_are_those_of_refusal_score(tmp_path: Path) -> None:
    suite = tmp_path / "own.yaml"
    suite.write_text(f"path: {TWO_KNOBS / 'prompts.jsonl'}\nlimit: 12\n")
    words = [
        sys.executable, "-m", "lm_eval", "run", "--model", "hf",
        "--model_args", f"pretrained={TWO_KNOBS},dtype=float32",
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
