"""The applicability check names what cannot be tested: rare behaviours, too few pairs, labels without effect."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.dissociation.applicability import check_direction, find_setup
from experiments.dissociation.measure import that_miss_rules
from experiments.probing.results import ProbeResults, WriteRecord
from experiments.responses.onset import Onsets
from experiments.run.behaviour import KINDS, Behaviour
from experiments.run.config import RunConfig
from experiments.run.corpus import Corpus
from extract.atomic_write import write_json
from extract.errors import UserError
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from probes.direction import Direction, Locus
from steering.direction_file import load_directions, save_directions

ONSETS = Onsets({"refuse": ((1,),), "abstain": ((2,),)}, {"refuse": 1.0, "abstain": 1.0})
DECLINES = {"harmful": "refuse", "uncertain": "abstain", "benign": "answer"}


def direction(name: str, **changes: object) -> Direction:
    plain = Direction(name, np.eye(8)[0], Locus("resid_post", 1, "post_last"), 1.0, -1.0, {"weights": "mine"})
    return replace(plain, **changes)


@pytest.fixture
def context(tmp_path, monkeypatch) -> SimpleNamespace:
    """A run of 120 prompts a label, two to a pair, half of them test prompts, on a model that does as labelled."""
    labels = np.repeat(list(DECLINES), 120).tolist()
    prompts = tuple(Prompt(str(i), ({"role": "user", "content": str(i)},), of, "answer") for i, of in enumerate(labels))
    part = np.array([*["test"] * 4, *["train"] * 3, "validation"])[np.arange(360) % 8]
    corpus = Corpus(prompts, np.arange(360) // 2, part)
    save_directions([direction("normative_write"), direction("epistemic_write")], tmp_path / "directions.safetensors")
    write_json(tmp_path / "probe.json", {})
    monkeypatch.setattr("experiments.dissociation.applicability.context_onsets", lambda context: ONSETS)
    hashes = {"fingerprint": lambda: "mine", "cast_fingerprint": lambda: "cast"}
    model = SimpleNamespace(d_model=8, n_layers=4, name="m", **hashes)
    made = SimpleNamespace(corpus=corpus, model=model, reporter=Reporter(quiet=True), file=lambda name: tmp_path / name)
    actions = np.array([DECLINES[of] for of in labels], dtype=object)
    made.behaviour = Behaviour(corpus, actions, np.zeros(360, dtype=bool))
    made.config = RunConfig.model_validate({"name": "x", "model": {"name": "m"}, "prompts": {"path": "p"}})
    made.store = SimpleNamespace(site="resid_post", positions=("inst_last", "post_last"))
    return made


def absent(context: SimpleNamespace, actions: np.ndarray | None = None, **dissociate: object) -> dict[str, str]:
    if actions is not None:
        context.behaviour = replace(context.behaviour, actions=actions)
    settings = context.config.dissociate.model_copy(update=dissociate)
    context.config = context.config.model_copy(update={"dissociate": settings})
    return dict(find_setup(context).absent)


def test_a_behaviour_seen_too_rarely_is_absent(context) -> None:
    setup = find_setup(context)
    assert [len(rows) for rows in setup.decliners.values()] == [60, 60]
    assert set(setup.directions) == {"normative", "epistemic"}
    assert setup.absent == {}
    actions = context.behaviour.actions.copy()
    test = np.flatnonzero(context.corpus.uncertain & context.corpus.within("test"))
    actions[test[19:]] = "answer"
    [(kind, reason)] = absent(context, actions).items()
    assert kind == "epistemic"
    assert reason.startswith("abstention on uncertain is absent: 19 baseline occurrences among tested prompts, 20 are")
    actions[test[19]] = "abstain"
    assert absent(context, actions) == {}


def test_too_few_pairs_are_reported(context) -> None:
    paired = (replace(p, pair=str(i % 9)) if p.label == "harmful" else p for i, p in enumerate(context.corpus.prompts))
    context.corpus = replace(context.corpus, prompts=tuple(paired))
    context.behaviour = replace(context.behaviour, corpus=context.corpus)
    few = "count as 9 independent ones (a pair, entity or template counts once), 10 are needed; give prompts of more"
    assert few in absent(context)["normative"]


def test_shuffled_labels_are_detected(context) -> None:
    shuffled = [np.random.default_rng(seed).permutation(context.behaviour.actions) for seed in range(200)]
    reasons = [absent(context, actions).get("normative", "") for actions in shuffled]
    common = [reason for reason in reasons if "is absent" not in reason]
    assert len(common) > 50  # often enough refused among those labelled harmful
    assert np.mean([not reason for reason in common]) <= 0.05
    assert {reason.split(":")[0] for reason in common if reason} == {"refusal on harmful is not tied to its label"}
    assert all(reason.endswith("check the labels") for reason in common if reason)


def test_onsets_that_cannot_be_learned_are_reported(context, monkeypatch) -> None:
    poor = Onsets({"refuse": ((1,),), "abstain": ()}, {"refuse": 0.4, "abstain": 0.0})
    monkeypatch.setattr("experiments.dissociation.applicability.context_onsets", lambda context: poor)
    reasons = absent(context)
    few = "onset prefixes cannot be learned for refuse: its own openings cover 40% of such completions, 50% are needed"
    assert reasons["normative"].startswith(few)
    assert "abstain" in reasons["epistemic"]


def test_a_direction_that_could_not_be_fitted_says_why(context) -> None:
    save_directions([direction("epistemic_write")], context.file("directions.safetensors"))
    context.file("stages").mkdir()
    without = WriteRecord(available=False, reason="too few are declined")
    ProbeResults(writes={"normative": without}).write(context.file("stages/probe.json"))
    assert absent(context) == {"normative": "no normative write direction: too few are declined"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vector": np.eye(16)[0]}, "has 16 numbers, the stream of m has 8"),
        ({"provenance": {"weights": "other", "model": "llama"}}, "was fitted on other weights (llama), not on m"),
        ({"provenance": {}}, "was fitted on unnamed weights, not on m"),
        ({"locus": Locus("resid_post", 4, "post_last")}, "belongs to layer 4; m has layers 0 to 3"),
        ({"locus": Locus("resid_post", 1, "post_7")}, "was fitted at post_7, which this run's activations do not"),
        ({"locus": Locus("resid_mid", 1, "post_last")}, "to resid_mid, this run's activations to resid_post"),
    ],
)
def test_a_direction_from_elsewhere_is_refused(changes, message, context, tmp_path) -> None:
    check_direction(context, direction("normative_write"))
    given = tmp_path / "theirs.safetensors"
    save_directions([direction("normative_write", **changes)], given)
    reasons = absent(context, directions=given)
    assert set(reasons) == {"normative", "epistemic"}
    assert message in reasons["normative"]
    assert "refusal probe" in reasons["normative"]
    assert find_setup(context).directions == find_setup(context).testable == {}


def test_a_direction_of_the_same_weights_in_another_dtype_is_used_and_said(context) -> None:
    said: list[str] = []
    context.reporter = SimpleNamespace(say=said.append)
    check_direction(context, direction("normative_write", provenance={"weights": "wide", "cast_weights": "cast"}))
    assert said == ["direction 'normative_write' was fitted on these weights in another dtype"]
    with pytest.raises(UserError, match="was fitted on other weights"):
        check_direction(context, direction("normative_write", provenance={"weights": "wide", "cast_weights": "other"}))


def test_a_file_that_holds_no_directions_is_refused(context, tmp_path) -> None:
    (tmp_path / "theirs.safetensors").write_text("nothing")
    for path in (tmp_path / "theirs.safetensors", tmp_path / "none.safetensors"):
        assert f"{path.name} cannot be read as directions" in absent(context, directions=path)["normative"]


def test_a_direction_that_only_induces_too_little_is_told_from_one_that_may_break_the_model(tmp_path) -> None:
    """Read back from the file, as the stage reads it; a direction of which no rule is known counts as the worse."""
    of_rule = {"kl": {"meets_selection_rules": False, "misses": "kl"}, "none known": {},
               "induce": {"meets_selection_rules": False, "misses": "induce"},
               "sound": {"meets_selection_rules": True, "misses": None}}  # fmt: skip
    save_directions([direction(name, provenance=of) for name, of in of_rule.items()], tmp_path / "some.safetensors")
    read = load_directions(tmp_path / "some.safetensors")
    for pair, expected in {
        ("sound", "sound"): ((), ()),
        ("kl", "induce"): (("normative",), ("epistemic",)),
        ("none known", "sound"): (("normative",), ()),
    }.items():
        assert that_miss_rules({kind: read[name] for kind, name in zip(KINDS, pair, strict=True)}) == expected
