"""On a model whose abstentions no direction holds, the direction fitted for them is known to induce nothing."""

from pathlib import Path

import pytest

from experiments.dissociation.onset_null import that_miss_rules
from experiments.pipeline.stages import run
from experiments.run.behaviour import KINDS
from experiments.run.config import load_config
from extract.progress import Reporter
from extract.shipped import ROOT
from steering.direction_file import load_directions

SINGLE = ROOT / "organisms" / "zoo" / "single"
LIGHT = ("dissociate.n_null_onset=39", "dissociate.n_onset=8", "dissociate.n_selection=8", "extract.layers=[4]",
         "dissociate.positions=[post_last]")  # fmt: skip


@pytest.mark.slow
def test_which_selection_rule_a_direction_misses_reaches_the_verdict(tmp_path: Path) -> None:
    settings = [*LIGHT, f"model.name={SINGLE}", f"prompts.path={SINGLE / 'prompts.jsonl'}"]
    config = load_config(ROOT / "configs" / "quickstart.yaml", settings)
    run(config, tmp_path / "single", until="probe", reporter=Reporter(quiet=True))
    found = load_directions(tmp_path / "single" / "directions.safetensors")
    directions = {kind: found[f"{kind}_write"] for kind in KINDS}
    assert directions["epistemic"].provenance["misses"] == "induce"
    assert directions["normative"].provenance["misses"] is None
    assert that_miss_rules(directions) == ((), ("epistemic",))
