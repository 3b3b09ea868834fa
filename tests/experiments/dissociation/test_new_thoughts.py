"""A model that thinks: what is tried in one pass, what a thought carries, and answers under what acts from its end."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.dissociation.new_thoughts import NewThoughts
from experiments.pipeline.stage_functions import FUNCTIONS
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.responses.setting import Setting
from experiments.run.config import load_config
from organisms.mechanism import Truth
from probes.direction import Direction, Locus
from steering.ablation import ablation
from steering.actuator import Affine
from steering.writer import ConstantGateWriter, Writer
from tests.conftest import ROOT
from tests.support.make_small_run import some_prompts

THOUGHT = 12  # tokens of every thought of these organisms, marks and all


def opened(folder: Path, name: str) -> LoadedRun:
    (folder / "prompts.jsonl").write_text("\n".join(some_prompts(12, name)))
    given = [f"model.name=organisms/zoo/{name}", f"prompts.path={folder / 'prompts.jsonl'}", "generate.batch_size=64",
             "generate.max_new_tokens=40"]  # fmt: skip
    loaded = LoadedRun(load_config("configs/quickstart.yaml", given), folder)
    (folder / "stages").mkdir()
    FUNCTIONS["respond"](loaded)
    return loaded


@pytest.fixture(scope="module", params=["thought-after", "thought-carries", "thought-against"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return opened(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def against(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return opened(tmp_path_factory.mktemp("against"), "thought-against")


def planted(loaded: LoadedRun, kind: str = "normative") -> Direction:
    truth = Truth.read(ROOT / loaded.config.model.name / "truth.json")
    (of,) = (variable for variable in truth.variables if variable.name == kind)
    locus = Locus("resid_post", truth.layer, truth.position)
    return Direction(f"{kind}_write", np.array(of.direction, dtype=np.float32), locus, of.mean_on, of.mean_off)


def refused(loaded: LoadedRun, n: int = 12) -> np.ndarray:
    return loaded.behaviour.decliners("normative", "train", "validation", "calibration", "test")[:n]


def test_what_a_thought_carries_is_what_was_planted(run: LoadedRun) -> None:
    edits, rows = ablation(planted(run)), refused(run)
    new = NewThoughts(run, context_onsets(run))
    carried = new.carried("normative", rows, edits)
    expected = 1.0 if run.config.model.name.endswith("carries") else 0.0
    for share in (carried.ablation, carried.pairs):
        assert share is not None
        assert share.estimate == pytest.approx(expected, abs=0.02)
        assert share.total > 0.95
    assert carried.unended == 0
    plain = OnsetScorer(run.model, [run.rendered[row] for row in rows], new.onsets).log_odds()["refuse"]
    (untouched, ablated) = new.after_own("normative", rows, [[], edits])
    np.testing.assert_allclose(untouched, plain, atol=1e-3)
    assert ablated.max() < 0 < plain.min()
    short = replace(run, config=run.config.model_copy(update={"generate": run.config.generate.model_copy(
        update={"max_new_tokens": THOUGHT - 2})}))  # fmt: skip
    short.__dict__ |= {"model": run.model, "completions": run.completions, "behaviour": run.behaviour}
    (cut,) = NewThoughts(short, new.onsets).after_own("normative", rows, [edits])
    np.testing.assert_allclose(cut, plain, atol=1e-3)  # no thought ends: nothing is stopped


def test_many_trials_in_one_pass_give_what_each_gives_alone(against: LoadedRun) -> None:
    rows, d = refused(against).tolist(), planted(against)
    trials = [ablation(d), [], ablation(replace(d, mean_negative=3.0)), ablation(planted(against, "epistemic"))]
    alone = [against.completer.complete(rows, edits=edits) for edits in trials]
    assert against.completer.complete_trials(rows, trials) == alone
    assert len({tuple(one.completion for one in each) for each in alone}) > 1


def test_what_acts_from_the_thought_s_end_leaves_the_thought_and_changes_the_answer(against: LoadedRun) -> None:
    rows, d = refused(against).tolist(), planted(against)
    held = ConstantGateWriter(Writer(d, Affine(1.0)), -1)
    thoughts = {tuple(against.rendered[row].token_ids): against.completions[row].token_ids[:THOUGHT] for row in rows}
    plain = [against.completions[row] for row in rows]
    nothing, permitted = against.completer.complete_each(rows, [Setting(thoughts=thoughts),
                                                                Setting(held=[held], thoughts=thoughts)])  # fmt: skip
    assert [one.token_ids for one in nothing] == [one.token_ids for one in plain]
    assert {one.action for one in plain} == {"refuse"}
    assert {one.action for one in permitted} == {"answer"}
    for one, was, row in zip(permitted, plain, rows, strict=True):
        assert one.token_ids[:THOUGHT] == was.token_ids[:THOUGHT]
        ids = torch.tensor([[*against.rendered[row].token_ids, *one.token_ids[:THOUGHT]]])
        layer = against.model.model.model.layers[d.locus.layer]
        handle = layer.register_forward_hook(partial(_set_from, d, ids.shape[1] - 1))
        with torch.no_grad():
            for _ in range(6):  # a pass over all tokens for each new one, without a cache
                ids = torch.cat([ids, against.model.model(ids).logits[:, -1:].argmax(-1)], dim=1)
        handle.remove()
        assert ids[0, -6:].tolist() == list(one.token_ids[THOUGHT:][:6])
    some = dict(list(thoughts.items())[:1])
    # another strength, since responses are cached by what acts, not by which prompts have thoughts
    almost = ConstantGateWriter(Writer(d, Affine(0.9)), -1)
    mixed = against.completer.complete(rows, held=[almost], thoughts=some)
    assert [one.action for one in mixed] == ["answer", *["refuse"] * (len(rows) - 1)]


def _set_from(d: Direction, first: int, _module: object, _args: object, out: torch.Tensor) -> torch.Tensor:
    r, stream = torch.from_numpy(d.vector), out.clone()
    stream[:, first:] += (d.mean_negative - stream[:, first:] @ r)[..., None] * r
    return stream
