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
from experiments.responses.completions import Completer
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.responses.setting import Setting
from experiments.run.config import load_config
from extract.errors import UserError
from organisms.mechanism import Truth
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from scoring.judges import CompletionToJudge
from serving.app import serve_forever
from steering.ablation import ablation
from steering.actuator import Affine
from steering.controller import respond, steering
from steering.conversation import Conversation
from steering.dial import Dial
from steering.writer import ConstantGateWriter, Writer
from tests.conftest import ROOT
from tests.support.make_small_run import some_prompts

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize(("threshold", "action"), [(0.99, "answer"), (0.01, "refuse")])
def test_dials_that_read_at_the_thought_s_end_leave_the_thought_and_act_on_what_follows(
    against: LoadedRun, threshold: float, action: str
) -> None:
    """The probe is the planted direction, so that refused prompts are above the lower threshold, answered below."""
    d, rows = planted(against), refused(against, 4).tolist()
    dial = Dial("normative", d.locus, LinearProbe(d.vector, 0.0, 1.0), Platt(0.1, 0.0), threshold, 0.0, d)
    rendered = [against.rendered[row] for row in rows]
    said, readings = respond(against.model, [dial], rendered, 40)
    plain = [list(against.completions[row].token_ids) for row in rows]
    assert [tokens[:THOUGHT] for tokens in said] == [tokens[:THOUGHT] for tokens in plain]
    to_judge = [CompletionToJudge(against.model.decode(tokens), "", ()) for tokens in said]
    assert {judged.action for judged in against.completer.judge.judge_all(to_judge)} == {action}
    thoughts = {tuple(row.token_ids): tuple(tokens[:THOUGHT]) for row, tokens in zip(rendered, plain, strict=True)}
    again = against.completer.complete(rows, dials=[dial], thoughts=thoughts)
    assert [list(one.token_ids) for one in again] == said
    ends = [row.thinking(tokens[:THOUGHT]) for row, tokens in zip(rendered, plain, strict=True)]
    with torch.no_grad():
        ids = torch.tensor([list(ends[0].token_ids)])
        stream = against.model.model(ids, output_hidden_states=True).hidden_states[d.locus.layer + 1][:, -1]
    assert readings.probability["normative"][0] == pytest.approx(dial.probability(stream.numpy())[0], abs=1e-5)
    shown = list[str]()
    Conversation(against.model, [dial], 40).say(against.prompts[rows[0]].text, shown.append)
    assert "".join(shown) == against.model.decode(said[0])
    with pytest.raises(UserError, match="prompt 1 has no thought that ends within 9 tokens"):
        respond(against.model, [dial], rendered, 9)
    with pytest.raises(UserError, match="the normative dial reads at the thought's end"):
        serve_forever(lambda _: None, against.model, [dial], {}, None, None, None, print)  # type: ignore[arg-type, return-value]
    batch = against.model.batch(rendered)
    with (pytest.raises(UserError, match="reads at think_end, which prompt 1 lacks; such dials are not served"),
          steering(against.model, [dial], batch, rendered)):  # fmt: skip
        pass


def test_an_answer_without_a_thought_is_scored_without_one_and_an_endless_thought_stops_nothing(
    against: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, edits = refused(against, 6), ablation(planted(against))
    new = NewThoughts(against, context_onsets(against))
    said = against.completer.complete(rows.tolist(), edits=edits)
    unlike = [replace(said[0], thought=0), replace(said[1], action=None, thought=0), *said[2:]]
    monkeypatch.setattr(Completer, "complete_trials", lambda *_: [unlike])
    (found,) = new.after_own("normative", rows, [edits])
    rendered = [against.rendered[row] for row in rows]
    without = OnsetScorer(against.model, rendered[:1], replace(new.onsets, thoughts={})).log_odds(edits)["refuse"]
    plain = OnsetScorer(against.model, rendered, new.onsets).log_odds()["refuse"]
    assert found[0] == pytest.approx(without[0], abs=1e-3)
    assert found[1] == pytest.approx(plain[1], abs=1e-3)
    assert (found[2:] < 0).all()


@pytest.mark.parametrize(("kept", "thinks"), [(0.4, False), (0.6, True)])
def test_a_model_thinks_first_if_most_answers_follow_a_thought(against: LoadedRun, kept: float, thinks: bool) -> None:
    run, n = replace(against), round(kept * len(against.completions))
    run.__dict__["completions"] = [
        replace(one, thought=one.thought * (i < n)) for i, one in enumerate(against.completions)
    ]
    assert run.thinks == thinks
    assert bool(context_onsets(against).thoughts)
