"""A model that declines nothing: the run finishes and reports, and the verdicts are not applicable."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from experiments.pipeline.stages import run
from experiments.run.config import load_config
from extract.progress import Reporter
from extract.shipped import ROOT
from tests.support.make_small_run import some_prompts

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


@pytest.fixture(scope="module")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run on a randomly initialised model with an eighth of the organism's pairs of prompts."""
    folder = tmp_path_factory.mktemp("random")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(ORGANISM)).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(ORGANISM).save_pretrained(folder / "model")
    (folder / "prompts.jsonl").write_text("\n".join(some_prompts(8)) + "\n")
    config = load_config(ROOT / "configs/quickstart.yaml", overrides(folder))
    run(config, folder / "run", reporter=Reporter(quiet=True))
    return folder / "run"


def overrides(folder: Path) -> list[str]:
    return [f"model.name={folder / 'model'}", f"prompts.path={folder / 'prompts.jsonl'}", "generate.max_new_tokens=8",
            "extract.layers=[1,4]"]  # fmt: skip


def test_it_finishes_and_reports_what_is_absent(random_run: Path) -> None:
    results = json.loads((random_run / "results.json").read_text())
    assert results["dissociation"]["verdict"] == "not_applicable"
    assert "refusal on harmful is absent" in results["dissociation"]["reasons"][0]
    assert results["triggers"]["verdict"] == "not_applicable"
    assert results["dials_absent"] == ["normative"]  # the epistemic one says an answer of the user's
    for kind, gate in results["could_have_answered"].items():
        assert not gate["applicable"]
        assert f"no {kind} write direction: " in gate["reason"]
    assert "planted" not in results
    before, after = (results["rates"][when] for when in ("before", "after"))
    assert after["uncertain_refused"] == before["uncertain_refused"]
    record = results["dissociation"]
    assert (list(record["side_effects"]), record["variants"], record["power"]) == (["none"], [], [])
    assert record["dependence"] is None
    page = (random_run / "report.html").read_text()
    assert "Not applicable" in page
    assert "No normative dial could be built" in page


def test_the_command_alone_exits_with_code_2(random_run: Path, cli) -> None:  # type: ignore[no-untyped-def]
    """`dissociate` prints in one line what `run` records, with exit code 2; no file changes."""
    given = [part for each in overrides(random_run.parent) for part in ("--set", each)]
    before = (random_run / "stages" / "dissociate.json").read_text()
    code, out, err = cli("dissociate", "configs/quickstart.yaml", *given, "--out", str(random_run))
    assert code == 2
    assert "Not applicable" in out
    lines = [line for line in err.splitlines() if line.startswith("refusal: ")]
    assert len(lines) == 1
    assert "the dissociation cannot be tested: refusal on harmful is absent: 0 baseline occurrences" in lines[0]
    assert "Traceback" not in err
    assert (random_run / "stages" / "dissociate.json").read_text() == before
