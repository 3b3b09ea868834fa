"""The verdict depends neither on the backend that runs the model nor on its architecture."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.pipeline.stages import run
from experiments.run.config import load_config
from extract.progress import Reporter
from organisms.mechanism import Truth
from probes.direction import cosine
from scoring.rates import RATES
from steering.direction_file import load_directions
from tests.conftest import ROOT
from tests.support.make_small_run import some_prompts

LIGHT = (
    "extract.positions=[post_last]", "extract.layers=[3,4,5]", "dissociate.n_null_onset=39",
    "dissociate.n_null_generation=0", "dissociate.n_onset=8", "dissociate.n_selection=6",
    "dissociate.n_side_effects=2", "dissociate.variants=false", "dissociate.deepest=0.7",
    "generate.max_new_tokens=12", "triggers.patched=16", "triggers.erased=0", "triggers.attributed=8",
)  # fmt: skip


@pytest.mark.slow
def test_every_backend_gives_the_same_verdict_and_effects(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(2)))
    found, words = {}, {}
    for backend in ("hooks", "nnsight", "transformer_lens"):
        settings = [*LIGHT, f"prompts.path={tmp_path / 'prompts.jsonl'}", f"model.backend={backend}"]
        for stage in ("triggers", "dissociate"):
            run(load_config(Path("configs/quickstart.yaml"), settings), tmp_path / backend, until=stage,
                reporter=Reporter(quiet=True))  # fmt: skip
        found[backend] = json.loads((tmp_path / backend / "stages" / "dissociate.json").read_text())
        words[backend] = json.loads((tmp_path / backend / "stages" / "triggers.json").read_text())
    assert {record["verdict"] for record in found.values()} == {"double_dissociation"}
    expected = found["hooks"]
    for record in found.values():
        assert record["matrix"] == expected["matrix"]
        for effect, same in zip(record["effects"], expected["effects"], strict=True):
            assert (effect["ablated"], effect["behaviour"]) == (same["ablated"], same["behaviour"])
            assert effect["null"]["p"] == pytest.approx(same["null"]["p"], abs=0.05)
            assert effect["onset"]["estimate"] == pytest.approx(same["onset"]["estimate"], abs=0.05)
    for record in words.values():
        assert [record[key] == words["hooks"][key] for key in ("verdict", "trigger_share")] == [True, True]
        assert record["patching"]["n"] >= 10
        for share, same in zip(record["patching"]["layers"], words["hooks"]["patching"]["layers"], strict=True):
            assert share["raised"]["estimate"] == pytest.approx(same["raised"]["estimate"], abs=0.01)
        assert record["attribution"]["by_label"] == words["hooks"]["attribution"]["by_label"]


@pytest.mark.slow
def test_a_hybrid_of_convolution_and_attention_is_told_right_and_steered(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(2, "hybrid")))
    given = ["model.name=organisms/zoo/hybrid", f"prompts.path={tmp_path / 'prompts.jsonl'}", "steer.one_dial=false"]
    config = load_config(Path("configs/quickstart.yaml"), [*LIGHT, *given, "steer.system_lines=[]"])
    for stage in ("triggers", "dissociate", "steer"):
        run(config, tmp_path / "run", until=stage, reporter=Reporter(quiet=True))
    stages = {name: json.loads((tmp_path / f"run/stages/{name}.json").read_text())
              for name in ("triggers", "dissociate", "steer")}  # fmt: skip
    assert (stages["dissociate"]["verdict"], stages["triggers"]["verdict"]) == ("double_dissociation", "mixed")
    planted = {v.name: np.array(v.direction) for v in Truth.read(ROOT / "organisms/zoo/hybrid/truth.json").variables}
    written = load_directions(tmp_path / "run/directions.safetensors")
    for kind, direction in planted.items():
        assert abs(cosine(written[f"{kind}_write"].vector, direction)) >= 0.9
    before, after = ({name: stages["steer"][when][name]["estimate"] for name in RATES} for when in ("before", "after"))
    assert before["over_refusal"] > 0.1 > 0.05 > after["over_refusal"]
    assert before["overconfidence"] > 0.3 > 0.15 > after["overconfidence"]
    assert max(after["missed_harm"], after["uncertain_refused"]) <= 0.06


@pytest.mark.slow
def test_of_a_model_that_thinks_it_is_found_where_it_decides_and_what_its_thought_carries(tmp_path: Path) -> None:
    """Of the one whose thought carries all; on half of its prompts the verdict may be open."""
    name = "thought-carries"
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(2, name)))
    config = load_config(Path("configs/quickstart.yaml"), [
        *LIGHT, f"model.name=organisms/zoo/{name}", f"prompts.path={tmp_path / 'prompts.jsonl'}",
        "dissociate.n_onset=12",
        "extract.layers=[2,3,4]", "extract.thought_tokens=14", "generate.max_new_tokens=40",
        "dissociate.positions=[post_last, think_30, think_60, think_end]",
    ])  # fmt: skip
    run(config, tmp_path / "run", until="dissociate", reporter=Reporter(quiet=True))
    found = json.loads((tmp_path / "run/stages/dissociate.json").read_text())
    assert found["basis"] == "free_thought"
    assert found["verdict"] in ("double_dissociation", "inconclusive"), found["reasons"]
    assert found["fixed_thought"]["verdict"] in ("no_effect", "inconclusive"), found["fixed_thought"]["reasons"]
    for effect in found["effects"]:  # after new thoughts an ablation stops its own way of declining, and no other
        assert effect["estimate"] == pytest.approx(float(effect["ablated"] == effect["behaviour"]), abs=0.03)
        own_null = effect["null"]["onset_effect"] > 15
        assert own_null == (effect["ablated"] == effect["behaviour"])
    assert [effect["estimate"] for effect in found["fixed_thought"]["effects"]] == [0.0] * 4
    planted = {v.name: np.array(v.direction) for v in Truth.read(ROOT / f"organisms/zoo/{name}/truth.json").variables}
    for kind, written in load_directions(tmp_path / "run/directions.safetensors").items():
        if kind.endswith("_write"):
            assert (written.locus.layer, written.locus.position) == (3, "think_30")
            assert abs(cosine(written.vector, planted[kind.removesuffix("_write")])) >= 0.9
    for share in (of[what] for of in found["fixed_thought"]["carried"].values() for what in ("ablation", "pairs")):
        assert share["estimate"] == pytest.approx(1.0, abs=0.05)
        assert share["high"] - share["low"] < 0.2
