"""Writers of the configured dials and of the one dial, errors where they cannot be built, and system lines."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials import elicited_write, write
from experiments.dials.elicited_write import with_least_loss
from experiments.dials.results import TriedWriter
from experiments.dials.text import tried_line
from experiments.dials.write import dial_writers, either_writers, onset_bias_writer, orthonormal
from experiments.responses.setting import Setting
from experiments.run.behaviour import ACTION_OF, MIN_BASELINE
from experiments.run.completion_file import Completion
from experiments.run.config import SteerConfig
from experiments.run.outcomes import Share
from extract.errors import UserError
from extract.progress import Reporter
from extract.prompts.prompt import Prompt, with_line
from probes.direction import Direction, Locus
from probes.statistics.intervals import Estimate
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.direction_file import save_directions
from steering.writer import Writer
from tests.support.eliciting import eliciting

pytestmark = pytest.mark.slow

LATER = {2: (4.0, -2.0), 3: (5.0, -3.0)}
N = 3 * MIN_BASELINE
OPENS = {"refuse": 1, "abstain": 2, "answer": 3}
BOTH = ["refuse"] * MIN_BASELINE + ["abstain"] * MIN_BASELINE + ["answer"] * MIN_BASELINE


def direction(name: str) -> Direction:
    return Direction(name, np.eye(8, dtype=np.float32)[0], Locus("resid_post", 1, "post_last"), 3.0, -1.0, {}, LATER)


class Words:
    """A tokenizer whose tokens are the lengths of words, which the model below decodes as one answer."""

    eos_token_id = 9

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [len(word) for word in text.split()]}


@pytest.fixture
def context(tmp_path):
    """Make a run whose model did `actions` to N prompts, each action with an opening of its own."""

    def made(actions: list[str], extracted: tuple[int, ...] = (0, 1, 2, 3), **steer: Any) -> Any:
        said = [Completion(str(i), "", "", a, "", (7, OPENS[a])) for i, a in enumerate(actions)]
        save_directions([direction(f"{kind}_write") for kind in ("normative", "epistemic")], tmp_path / "directions")
        found = SimpleNamespace(
            completions=said, thinks=False, file=lambda name: tmp_path / name.removesuffix(".safetensors")
        )
        config = {"steer": SteerConfig(**steer), "prompts": SimpleNamespace(contrast=None)}
        found.config, found.reporter = SimpleNamespace(**config), Reporter(quiet=True)
        found.model = SimpleNamespace(n_layers=4, eos_ids=[0], tokenizer=Words(), decode=lambda tokens: "Who can tell")
        found.corpus = SimpleNamespace(within=lambda *parts: np.ones(len(actions), dtype=bool), rated=True)
        did = np.array(actions, dtype=object)
        declined = lambda kind: did == ACTION_OF[kind]  # noqa: E731
        found.behaviour = SimpleNamespace(basis="wording", ways=did, declined=declined)
        found.store = SimpleNamespace(layers=extracted)
        return found

    return made


@pytest.mark.parametrize(
    ("steer", "actuator"),
    [({}, Affine()), ({"strength": 0.5}, Affine(0.5)), ({"actuator": "addition", "strength": 2}, Addition(2.0)),
     ({"actuator": "clamp", "steps": 1, "layers": "later"}, Clamp())],
)  # fmt: skip
def test_dials_write_along_the_runs_directions_as_configured(context, steer, actuator) -> None:
    steps, later = steer.get("steps"), steer.get("layers") == "later"
    assert list(dial_writers(context(BOTH, **steer)).items()) == [
        (kind, Writer(direction(f"{kind}_write"), actuator, steps, later)) for kind in ("normative", "epistemic")
    ]


@pytest.mark.parametrize(
    ("actions", "steer", "message"),
    [
        (
            BOTH,
            {"extracted": (0, 1, 2), "layers": "later"},
            "steer.layers is 'later', but activations of layer 3 are not extracted",
        ),
        (
            ["answer"] * N,
            {"actuator": "onset_bias"},
            r"steer.actuator is onset_bias, but the model does not refuse often enough \(0 times on train and "
            r"validation\); the model does not abstain often enough .*; use affine, which needs no openings",
        ),
    ],
)
def test_dials_that_cannot_be_built_say_why(context, actions, steer, message) -> None:
    with pytest.raises(UserError, match=message):
        dial_writers(context(actions, **steer))
    assert set(dial_writers(context(["answer"] * N))) == {"normative", "epistemic"}  # the control


def test_an_onset_bias_takes_the_shortest_openings_of_each_way_of_declining_seen_often_enough(context) -> None:
    found = dial_writers(context(BOTH, actuator="onset_bias", steps=3))
    assert found["normative"] == Writer(None, OnsetBias(((7, 1),)), 3)
    assert found["epistemic"] == Writer(None, OnsetBias(((7, 2),)), 3)
    strong = dial_writers(context(BOTH, actuator="onset_bias", strength=5))["normative"].actuator
    assert strong == replace(OnsetBias(((7, 1),)), strength=5.0)
    few = [*BOTH, "answer"]
    few.remove("abstain")
    assert list(dial_writers(context(few, actuator="onset_bias", answer=None))) == ["normative"]
    writer = onset_bias_writer(SteerConfig(actuator="onset_bias"), [(7, 6), (7, 6, 1), (7, 9)])
    assert writer.actuator == OnsetBias(((7, 6), (7, 9)))


@pytest.mark.parametrize("actuator", ["affine", "onset_bias"])
def test_of_a_model_that_does_not_abstain_the_epistemic_dial_says_an_answer_and_ends(context, actuator) -> None:
    declines = ["refuse"] * MIN_BASELINE + ["answer"] * N
    run = context(declines, actuator=actuator, answer="who can tell")
    if actuator == "affine":  # no opening tells refusals from answers, so their direction is compared with none
        run.completions = [replace(completion, token_ids=(7,)) for completion in run.completions]
    save_directions([direction("normative_write")], run.file("directions.safetensors"))
    found, tried = with_least_loss(run, dial_writers(run))
    assert tried == []  # there is no other way to compare it with
    said = found["epistemic"].actuator
    assert isinstance(said, OnsetBias)
    assert said.prefixes == ((3, 3, 4, Words.eos_token_id),)
    assert said.strength >= 100
    assert list(found) == ["normative", "epistemic"]
    inputs: Any = SimpleNamespace(config=run.config, behaviour=None)
    assert either_writers(inputs, found) == []  # it is no knob of the model
    run.config.steer = SteerConfig(actuator=actuator, answer=None)
    assert list(with_least_loss(run, dial_writers(run))[0]) == ["normative"]


def test_the_span_of_over_refused_prompts_is_set_where_the_dial_permits(context) -> None:
    """Two categories refuse benign prompts along an axis each; a third, with few of them, has no say."""
    n, rng = MIN_BASELINE, np.random.default_rng(0)
    sizes = {"one": n, "two": n, "few": 3}
    name = [c for c, size in sizes.items() for _ in range(2 * size)]
    actions = [a for size in sizes.values() for a in ["refuse"] * size + ["answer"] * size]
    X = 0.01 * rng.normal(size=(len(name), 8))
    for i, (category, action) in enumerate(zip(name, actions, strict=True)):
        X[i, {"one": 2, "two": 3, "few": 4}[category]] += 5.0 if action == "refuse" else 1.0
    run = context(actions, permit="subspace")
    everything = np.ones(len(name), dtype=bool)
    run.corpus = SimpleNamespace(
        within=lambda *parts: everything, rated=everything, benign=everything,
        prompts=[SimpleNamespace(category=c) for c in name],
    )  # fmt: skip
    run.behaviour.answered = np.array(actions) == "answer"
    run.store.read = lambda layer, position: X
    found = dial_writers(run)
    opening = found["normative"].opening
    assert len(opening) == 2
    assert not found["epistemic"].opening
    basis = np.stack([one.vector for one in opening])
    np.testing.assert_allclose(basis @ basis.T, np.eye(2), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(basis[:, [2, 3]], axis=1), 1, atol=0.01)
    for one in opening:
        assert one.mean_negative == pytest.approx(float((X @ one.vector)[run.behaviour.answered].mean()), abs=1e-4)
    assert opening[0].provenance == {"categories": "one, two"}
    run.config.steer = SteerConfig()
    assert dial_writers(run)["normative"].opening == ()
    run.config.steer, run.behaviour.answered = SteerConfig(permit="subspace"), ~everything
    assert dial_writers(run)["normative"].opening == ()


def test_a_span_is_no_deeper_than_what_differs_and_needs_an_actuator_that_sets_projections() -> None:
    e = np.eye(4)
    nearly = e[0] + 0.05 * e[2]
    spans = [e[0], e[0], e[1]], [e[0], e[0]], [e[0], nearly / np.linalg.norm(nearly)]
    assert [len(orthonormal(np.stack(span))) for span in spans] == [2, 1, 1]
    with pytest.raises(ValueError, match="permit 'subspace' sets projections, and actuator 'addition' does not"):
        SteerConfig(permit="subspace", actuator="addition")


def test_one_dial_opens_where_the_normative_dial_writes_what_that_opens(monkeypatch) -> None:
    loci = {layer: Locus("resid_post", layer, "post_last") for layer in (1, 2)}
    at = {layer: replace(direction(f"layer {layer}"), locus=locus) for layer, locus in loci.items()}
    opening = (direction("over_refusal_0"),)
    writers: Any = {"normative": Writer(at[1], Affine(), opening=opening), "epistemic": Writer(at[2], Affine())}
    inputs: Any = SimpleNamespace(
        config=SimpleNamespace(steer=SteerConfig()), behaviour=None, store=SimpleNamespace(read=None, layers=())
    )
    monkeypatch.setattr(write, "either_samples", lambda behaviour: object())
    monkeypatch.setattr(write, "fit_write", lambda read, locus, *rest: at[locus.layer])
    made = either_writers(inputs, writers)
    assert [(one.direction.locus.layer, one.opening) for one in made if one.direction] == [(1, opening), (2, ())]
    assert either_writers(inputs, {"normative": writers["normative"]}) == []  # there is no second one to compare with


def test_a_line_heads_the_system_message_or_makes_one() -> None:
    user, brief = {"role": "user", "content": "hi"}, {"role": "system", "content": "be brief"}
    bare, given = (Prompt("a", messages, "benign", "answer") for messages in ((user,), (brief, user)))
    assert with_line(bare, "be kind").messages == ({"role": "system", "content": "be kind"}, user)
    assert with_line(given, "be kind").messages == ({"role": "system", "content": "be kind\nbe brief"}, user)
    assert given.messages[0]["content"] == "be brief"


def test_of_ways_to_write_the_one_that_loses_least_is_used(tmp_path, two_knobs, monkeypatch) -> None:
    """Declines by reason whose direction does nothing lose against an answer that the organism can say."""
    loaded = eliciting(tmp_path, two_knobs, monkeypatch)()
    nothing = Direction("epistemic_write", np.eye(128, dtype=np.float32)[0], Locus("resid_post", 4, "post_last"), 0, 0)
    own = {"epistemic": Writer(nothing, Addition(1.0), None)}
    said = "i am not able to say. i do not know anything about anna novak."
    loaded.config = loaded.config.model_copy(update={"steer": SteerConfig(answer=said)})
    loaded.__dict__["behaviour"] = replace(loaded.behaviour, basis="wording")
    assert with_least_loss(loaded, own) == (own, [])
    loaded.__dict__["behaviour"] = replace(loaded.behaviour, basis="reason")
    plainly = loaded.completer.complete_some([range(len(loaded.prompts))], [Setting()])[0]
    loaded.__dict__["completions"] = plainly  # of the model: an answer is permitted by leaving it as it is
    found, tried = with_least_loss(loaded, own)
    assert [one.name for one in tried] == ["declines", "answer"]
    plain, answer = tried
    assert answer.did.estimate == 1 > plain.did.estimate
    assert answer.declined.estimate == plain.declined.estimate  # both permit by changing nothing
    assert answer.lost.estimate == plain.lost.estimate == 0
    known = loaded.corpus.benign & loaded.behaviour.correct & loaded.corpus.within("train", "validation")
    assert 0 < answer.lost.n <= known.sum()
    assert answer.did.n == (loaded.corpus.uncertain & loaded.corpus.within("validation")).sum() > 8
    assert found["epistemic"].direction is None
    assert tried_line(tried).startswith("The epistemic dial writes a given answer, which loses least on ")


def test_a_writer_s_loss_counts_what_is_not_declined_what_is_declined_and_known_answers_that_are_lost() -> None:
    def tried(did: float, declined: float, lost: float) -> float:
        shares = {"did": Share(did, 0, 1, 9), "declined": Share(declined, 0, 1, 9), "lost": Estimate(lost, 0, 1, 9)}
        return TriedWriter(kind="normative", name="declines", **shares).loss

    assert tried(0.9, 0.125, 0.5) == pytest.approx(0.725)
    assert tried(np.nan, 0.125, np.nan) == pytest.approx(0.125)  # no prompt to decline, nothing known


def test_the_normative_dial_writes_openings_where_its_direction_loses_known_answers(
    tmp_path, two_knobs, monkeypatch
) -> None:
    """The direction garbles what it permits; the openings of the organism's own refusals leave answers as they are."""
    loaded = eliciting(tmp_path, two_knobs, monkeypatch)()
    (refusal,) = loaded.completer.complete_some([np.flatnonzero(loaded.corpus.harmful)[:1].tolist()], [Setting()])[0]
    onsets = SimpleNamespace(lacking=lambda way: "", prefixes={"refuse": (refusal.token_ids[:4],)})
    monkeypatch.setattr(elicited_write, "context_onsets", lambda run: onsets)
    garbles = Direction(
        "normative_write", np.eye(128, dtype=np.float32)[0], Locus("resid_post", 4, "post_last"), 90, 90
    )
    loaded.config = loaded.config.model_copy(update={"steer": SteerConfig(answer=None)})
    found, tried = with_least_loss(loaded, {"normative": Writer(garbles, Affine(), None)})
    own, openings = tried
    assert (own.kind, own.name, openings.name) == ("normative", "declines", "openings")
    assert own.lost.estimate > 0.9 > 0.1 > openings.lost.estimate
    assert openings.did.estimate > 0.9 > own.did.estimate
    assert list(found) == ["normative"]
    assert isinstance(found["normative"].actuator, OnsetBias)
    assert tried_line(tried).startswith("The normative dial writes the openings of its own refusals, which loses least")
    knows_nothing = np.zeros(len(loaded.prompts), dtype=bool)
    loaded.__dict__["behaviour"] = replace(loaded.behaviour, correct=knows_nothing)
    _, tried = with_least_loss(loaded, {"normative": Writer(garbles, Affine(), None)})
    assert [one.lost.n for one in tried] == [0, 0]
    assert "nan" not in tried_line(tried)
