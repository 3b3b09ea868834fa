"""The verdict depends neither on the backend that runs the model nor on its architecture."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from experiments.pipeline.stages import run
from experiments.run.completion_file import read_completions
from experiments.run.config import load_config
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from organisms.mechanism import Truth
from organisms.spec import load_spec
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
def test_a_model_that_decides_after_its_thought_is_scored_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The organism `late` says one word and then decides; here that word is a thought of one token."""
    decode = ChatModel.decode_piece

    def thinking(self: ChatModel, tokens: Sequence[int]) -> str:
        return decode(self, tokens).replace("well", "<think>well</think>", 1)

    monkeypatch.setattr(ChatModel, "decode_piece", thinking)
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(2, "late")))
    given = ["model.name=organisms/zoo/late", f"prompts.path={tmp_path / 'prompts.jsonl'}"]
    config = load_config(Path("configs/quickstart.yaml"), [*LIGHT, *given, "steer.one_dial=false"])
    for stage in ("dissociate", "steer"):
        run(config, tmp_path / "run", until=stage, reporter=Reporter(quiet=True))
    said = read_completions(tmp_path / "run" / "completions.jsonl")
    assert {(completion.thought, len(completion.token_ids) > 1) for completion in said} == {(1, True)}
    probed = json.loads((tmp_path / "run/stages/probe.json").read_text())
    assert not any(opening.startswith("well") for kind in probed["onsets"].values() for opening in kind["prefixes"])
    found = json.loads((tmp_path / "run/stages/dissociate.json").read_text())
    allowed = load_spec(ROOT / "organisms/zoo/late/spec.yaml").verdicts
    assert allowed is not None
    assert found["verdict"] in allowed.free.allowed, found["reasons"]  # directions are those at the prompt's end
    steered = json.loads((tmp_path / "run/stages/steer.json").read_text())
    assert {dial["read"]["position"] for dial in steered["dials"].values()} == {"post_last"}
