"""The whole way on an organism that abstains under a line alone, by a coordinate of its own."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.grading.elicited import open_elicited
from experiments.dials.results import SteerResult
from experiments.dissociation.elicited_judge import CELLS
from experiments.dissociation.results import Dissociation
from experiments.pipeline.stages import run
from experiments.run.behaviour import KINDS
from experiments.run.config import load_config
from extract.progress import Reporter
from organisms.mechanism import Truth
from probes.direction import cosine
from steering.direction_file import load_directions
from tests.conftest import ROOT

ORGANISM = ROOT / "organisms" / "zoo" / "asked-own-knob"
FEW = (
    "generate.max_new_tokens=16", "extract.layers=[3]", "extract.positions=[post_last]", "dissociate.variants=false",
    "dissociate.n_null_onset=39", "dissociate.n_null_generation=0", "dissociate.n_selection=8", "dissociate.n_onset=8",
    "dissociate.n_side_effects=4", "elicit.n_choose=16", "elicit.n_transfer=8",
)  # fmt: skip


@pytest.mark.slow
def test_the_knob_that_only_the_line_turns_is_found_and_shuffles_find_none(tmp_path: Path) -> None:
    given = [f"model.name={ORGANISM}", f"prompts.path={ORGANISM / 'prompts.jsonl'}", *FEW]
    config = load_config("configs/quickstart.yaml", given)
    ran = run(config, tmp_path, until="dissociate", reporter=Reporter(quiet=True))
    run(config, tmp_path, until="steer", reporter=Reporter(quiet=True))
    assert {"elicit", "elicited"} <= set(ran)
    found = Dissociation.read(tmp_path / "stages/dissociate.json")
    assert (found.verdict, found.basis) == ("double_dissociation", "elicited"), found.reasons
    assert found.elicited is not None
    own = {(e.ablated, e.condition, e.behaviour): e for e in found.elicited.effects}
    for kind in KINDS:
        for condition, behaviour in CELLS:
            share = own[kind, condition, behaviour]
            assert share.low > 0.8 if kind == behaviour else share.high < 0.15
            assert (share.p_null <= 0.05) == (kind == behaviour)
    assert [abs(transfer.estimate) < 0.5 for transfer in found.elicited.transfer] == [True, True]
    planted = {v.name: np.array(v.direction) for v in Truth.read(ORGANISM / "truth.json").variables}
    written = load_directions(tmp_path / "elicited/directions.safetensors")["epistemic_write"]
    assert (
        abs(cosine(written.vector, planted["epistemic"]))
        > 0.9
        > 0.3
        > abs(cosine(written.vector, planted["normative"]))
    )
    assert written.locus == found.elicited.elicitation.direction.locus
    dialled = SteerResult.read(tmp_path / "stages/steer.json")
    tried = {one.name: one for one in dialled.tried if one.kind == "epistemic"}
    assert {"direction", "openings"} <= set(tried)
    assert dialled.dials["epistemic"].written_at == (
        written.locus if min(tried.values(), key=lambda one: one.loss).name == "direction" else None
    )
    assert tried["direction"].did.estimate > 0.8  # the knob that the line turns, turned without it
    shuffler = open_elicited(tmp_path, clustered=False)
    assert shuffler is not None
    assert shuffler.verdict(0) in ("inconclusive", "no_effect", "not_applicable")
    assert run(config, tmp_path, until="dissociate", reporter=Reporter(quiet=True)) == []  # all is done
