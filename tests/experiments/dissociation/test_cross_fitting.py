"""Every decliner is tested, and none under a direction that was fitted or chosen on it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dissociation import measure
from experiments.dissociation.applicability import DissociationSetup
from experiments.dissociation.onset_null import may_break_more, that_miss_rules
from experiments.dissociation.results import MeasuredEffects
from experiments.probing import stage
from experiments.responses.onset import Onsets
from experiments.run.behaviour import KINDS, Behaviour, write_samples
from experiments.run.config import RunConfig
from experiments.run.corpus import PARTS, Corpus
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import Key, Outcomes
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from probes.direction import Direction, Locus

ACTION = {"harmful": "refuse", "uncertain": "abstain", "benign": "answer"}


def direction(name: str, **provenance: object) -> Direction:
    given = {"meets_selection_rules": True} | provenance
    return Direction(name, np.eye(8)[0], Locus("resid_post", 1, "post_last"), 1.0, -1.0, given)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A run of 120 prompts a label, in all parts alike, on a model that does as labelled."""
    labels = np.repeat(list(ACTION), 120).tolist()
    prompts = tuple(Prompt(str(i), ({"role": "user", "content": str(i)},), of, "answer") for i, of in enumerate(labels))
    config = RunConfig.model_validate({"name": "x", "model": {"name": "m"}, "prompts": {"path": "p"}})
    run, asked = RunInputs(config, tmp_path, Reporter(quiet=True)), list[np.ndarray]()
    corpus = Corpus(prompts, np.arange(360), np.array(PARTS, dtype=object)[np.arange(360) % 4])
    actions = np.array([ACTION[of] for of in labels], dtype=object)
    behaviour = Behaviour(corpus, actions, np.zeros(360, dtype=bool))

    def outcomes(rows: np.ndarray, named: dict[Key, Any], advance: Any) -> dict[Key, Outcomes]:
        asked.append(rows)
        return dict.fromkeys(named, Outcomes.of(rows, ["answer"] * len(rows)))

    run.__dict__ |= {"prompts": list(prompts), "corpus": corpus, "behaviour": behaviour, "asked": asked}
    run.__dict__["completer"] = SimpleNamespace(outcomes=outcomes)
    return run


def test_the_other_half_is_tested_under_directions_that_have_not_seen_it(run: Any, monkeypatch: Any) -> None:
    fitted = dict[str, set[int]]()

    def choose(loaded: Any, kind: Any, onsets: Onsets, screened: bool) -> Any:
        assert screened == (kind == "normative")
        samples = write_samples(loaded.behaviour, kind)
        assert samples is not None
        fitted[kind] = {*samples.rows, *loaded.behaviour.decliners(kind, "validation")}
        return SimpleNamespace(chosen=direction(f"{kind}_write"))

    monkeypatch.setattr(measure, "choose_write", choose)
    monkeypatch.setattr(measure, "context_onsets", lambda loaded: Onsets({}, {}))
    own = {kind: direction(f"{kind}_write", screened=kind == "normative") for kind in KINDS}
    decliners = {kind: run.behaviour.decliners(kind, "calibration", "test") for kind in KINDS}
    setup = DissociationSetup(own, decliners, {})
    outcomes, of_other_half = measure._cross_fitted(run, setup)
    assert set(of_other_half) == set(KINDS)
    assert {key: set(of.rows) for key, of in outcomes.items()} == dict.fromkeys(
        (("plain", "ablate_normative"), ("plain", "ablate_epistemic")),
        {*run.behaviour.decliners("normative", "train", "validation")}
        | {*run.behaviour.decliners("epistemic", "train", "validation")},
    )
    for kind, rows in fitted.items():
        assert not rows & set(run.asked[0]), kind
        assert not rows & {*run.behaviour.decliners(kind, "train", "validation")}
    tested = {*run.asked[0], *np.concatenate(list(decliners.values()))}
    assert tested == {*np.flatnonzero(np.isin(run.behaviour.actions.astype(str), ["refuse", "abstain"]))}
    assert run.corpus.part[0] == "train"  # the run itself stays as it is

    monkeypatch.setattr(measure, "choose_write", lambda *_: SimpleNamespace(chosen=None))
    assert measure._cross_fitted(run, setup) == ({}, {})
    weak, broken = (direction("x", meets_selection_rules=False, misses=rule) for rule in ("induce", "kl"))
    monkeypatch.setattr(measure, "choose_write", lambda *_: SimpleNamespace(chosen=broken))
    assert measure._cross_fitted(run, setup) == ({}, {})
    as_broken = DissociationSetup(dict.fromkeys(KINDS, broken), decliners, {})
    assert set(measure._cross_fitted(run, as_broken)[0]) == set(outcomes)
    monkeypatch.setattr(measure, "choose_write", lambda *_: SimpleNamespace(chosen=weak))
    found, of_other_half = measure._cross_fitted(run, setup)
    assert set(found) == set(outcomes)
    assert that_miss_rules(own, of_other_half) == ((), KINDS)  # so it keeps from a verdict


def test_the_rules_are_missed_where_one_half_misses_them() -> None:
    good, weak, broken = (
        direction("x"),
        *(direction("x", meets_selection_rules=False, misses=r) for r in ("induce", "kl")),
    )
    n, e = KINDS
    assert that_miss_rules({n: good, e: good}, {}) == ((), ())
    assert that_miss_rules({n: weak, e: good}, {n: good, e: broken}) == ((e,), (n,))
    assert that_miss_rules({n: weak, e: good}, {n: broken, e: weak}) == ((n,), (e,))
    assert [may_break_more({n: of, e: good}, {n: good, e: broken}) for of in (good, weak, broken)] == [
        False,
        False,
        True,
    ]


def test_a_rule_that_the_other_half_misses_is_recorded(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    good, weak = direction("x"), direction("x", meets_selection_rules=False, misses="induce")
    setup = DissociationSetup(dict.fromkeys(KINDS, good), {kind: np.arange(3) for kind in KINDS}, {})
    given = {"find_setup": setup, "onset_effects": None, "write_outcomes": None, "dependence": None}
    given |= {name: {} for name in ("_with_onsets", "_outcomes", "_variants", "wrapped_outcomes", "_reads")}
    given |= {"token_costs": {}, "_interventions": {name: [] for name in ("none", *map("ablate_{}".format, KINDS))}}
    given["_cross_fitted"] = ({}, {"normative": weak, "epistemic": good})
    for name, value in given.items():
        monkeypatch.setattr(measure, name, lambda *_, value=value: value)
    run.file("stages").mkdir()
    measure.measure_effects(run)
    found = MeasuredEffects.read(run.file("stages/effects.json"))
    assert (found.unsound, found.weak) == ((), ("normative",))


@pytest.mark.parametrize("screened", [True, False])
def test_the_other_half_chooses_as_the_runs_own_directions_were_without_asking_again(screened, monkeypatch) -> None:
    fitted, asked = [direction("a"), direction("b")], list[Any]()

    def choose_each(draws: Any, screen: Any, advance: Any) -> Any:
        asked.append((draws, screen))
        advance(3)
        return [(SimpleNamespace(direction=fitted[1]), True)]

    loaded: Any = SimpleNamespace(reporter=Reporter(quiet=True))
    selection: Any = SimpleNamespace(choose_each=choose_each, screen=lambda of: ("first order", of))
    monkeypatch.setattr(stage, "write_fitter", lambda *_, **__: SimpleNamespace(fit=lambda: fitted))
    chosen = stage._chosen(loaded, "normative", Any, selection, Any, screened)  # type: ignore[arg-type]
    assert chosen is not None
    assert (chosen.best.direction, chosen.usable, chosen.screened) == (fitted[1], True, None)
    assert asked == [([fitted], ("first order", fitted) if screened else None)]
