"""A model that is named without a configuration or a budget, on a machine without a GPU; and the files of each rank."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from experiments.run.config import load_config
from extract.shipped import ROOT
from refusal.cli.stages import _of_process
from tests.support.make_small_run import some_prompts

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the whole is run")
def test_it_is_cut_to_an_hour_unless_told_otherwise_and_the_cut_is_kept(cli, tmp_path: Path) -> None:
    model = Path(shutil.copytree(ORGANISM, tmp_path / "model", ignore=shutil.ignore_patterns("truth.json")))
    (tmp_path / "few.jsonl").write_text("\n".join(some_prompts(8)) + "\n")
    run = tmp_path / "run"
    given = ("extract", str(model), "--set", f"prompts.path={tmp_path / 'few.jsonl'}", "--out", str(run))

    def cut() -> dict | None:  # type: ignore[type-arg]
        return yaml.safe_load((run / "config.yaml").read_text())["budget"]  # type: ignore[no-any-return]

    code, out, err = cli(*given)
    assert code == 0, err
    said = " ".join(err.split())
    assert "is a model: prompts for real models" in said
    assert "no GPU here, so the run is cut to 1h; --budget none runs the whole" in said
    budget = cut()
    assert budget is not None
    assert budget["minutes"] == 60
    assert str(run / "activations.h5") in out
    _, _, err = cli(*given)
    assert "is continued as its budget of 60 minutes cut it" in " ".join(err.split())
    assert "nothing to do" in err
    code, out, err = cli(*given, "--budget", "none", "--json")
    assert code == 0, err
    assert "cut to" not in err
    assert cut() is None
    assert json.loads(out) == {"written": str(run / "activations.h5")}


def test_processes_that_split_layers_write_into_directories_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config(Path("configs/quickstart.yaml"))
    split = config.model_copy(update={"model": config.model.model_copy(update={
        "loading": config.model.loading.model_copy(update={"tp_plan": "auto"})})})  # fmt: skip
    found = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        found[rank] = [_of_process(tmp_path / "run", one) for one in (split, config)]
    assert found["0"] == [tmp_path / "run", tmp_path / "run"]
    assert found["1"] == [tmp_path / "run.rank1", tmp_path / "run"]
