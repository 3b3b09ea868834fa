"""Judging is separate from measuring: another margin or level judges the same measurements again, without a model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.grading.cases import thinned
from experiments.dissociation.applicability import DissociationSetup
from experiments.dissociation.judge import BY_REASON, dissociate, judge_effects
from experiments.dissociation.measure import _outcomes
from experiments.dissociation.results import Dissociation, Looks, MeasuredEffects, NullRecord
from experiments.dissociation.text import tables
from experiments.pipeline.graph import hash_inputs, stages_of
from experiments.pipeline.stage_functions import describe
from experiments.responses import loaded_run
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind
from experiments.run.completion_file import Completion, write_completions
from experiments.run.config import RunConfig
from experiments.run.corpus import TESTED
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.run.outcomes import PLAIN, Key, Outcomes, read_outcomes, write_outcomes
from experiments.run.tested import share_of_all
from extract.atomic_write import write_json
from extract.progress import Reporter
from probes.statistics.intervals import clopper_pearson
from probes.statistics.sequential import look_level
from tests.conftest import ORGANISM

DECLINES = {"harmful": "refuse", "uncertain": "abstain", "benign": "answer"}
QUIET = Reporter(quiet=True)


@pytest.fixture
def prompts(tmp_path) -> Path:
    return thinned(ORGANISM / "prompts.jsonl", tmp_path / "prompts.jsonl", every=3)


def configured(prompts: Path, **dissociate: object) -> RunConfig:
    given = {"name": "judged", "model": {"name": str(ORGANISM)}, "prompts": {"path": prompts}}
    return RunConfig.model_validate(given | {"dissociate": dissociate})


def effects(inputs: RunInputs) -> tuple[MeasuredEffects, dict[Key, Outcomes]]:
    """Each ablation stops six in ten of its own decliners and none of the other's; the null has no effect."""
    rows = np.flatnonzero(inputs.corpus.within("test"))
    plain = inputs.behaviour.actions[rows]
    actions = {"none": plain}
    for kind, action in (("normative", "refuse"), ("epistemic", "abstain")):
        opened = (plain == action) & (np.arange(len(rows)) % 10 < 6)
        actions[f"ablate_{kind}"] = np.where(opened, "answer", plain)
        actions[f"add_{kind}"] = np.where(plain == "answer", action, plain)
    turned = (plain == "abstain") & (np.arange(len(rows)) % 10 >= 6)
    actions["ablate_normative"] = np.where(turned, "refuse", actions["ablate_normative"])
    outcomes = {(PLAIN, name): Outcomes.of(rows, did) for name, did in actions.items()}
    decliners = {kind: inputs.behaviour.decliners(kind, "test")[:12] for kind in KINDS}
    for name in ("none", "ablate_normative", "ablate_epistemic"):
        onset = np.full(len(rows), np.nan)
        for kind, of in decliners.items():
            after = [np.inf if name.endswith(kind) else 1.0, *[1.0] * (len(of) - 1)]  # the first is not finite
            onset[np.searchsorted(rows, of)] = 3.0 if name == "none" else after
        outcomes[PLAIN, name] = replace(outcomes[PLAIN, name], onset=onset)
    null = {a: {b: NullRecord.of(9.0 if a == b else 0.0, (1.0,) * 99, (0.5,)) for b in KINDS} for a in KINDS}
    benign = inputs.behaviour.answered_benign("test")[:8]
    did = ["answer"] * 8 + (["answer"] * 6 + ["refuse"] * 6) * 2
    varied = Outcomes.of(np.concatenate([benign, *decliners.values()]), did)
    onset = np.full(len(varied.rows), np.nan)
    onset[np.isin(varied.rows, decliners["epistemic"])] = 0.5
    outcomes["zero/later/last_on", "ablate_normative"] = replace(varied, onset=onset)
    measured = MeasuredEffects(directions=KINDS, unsound=(), absent={}, null=null, dependence=None, side_effects={})
    return measured, outcomes


def test_a_new_margin_or_level_changes_only_the_stages_that_read_the_verdict(prompts) -> None:
    def hashed(**dissociate: object) -> dict[str, str]:
        config = configured(prompts, **dissociate)
        return hash_inputs(config, stages_of(config), "source")

    def changed(**dissociate: object) -> set[str]:
        return {name for name, value in hashed(**dissociate).items() if value != hashed()[name]}

    judged = {"dissociate", "results", "report"}
    for settings in ({"margin": 0.9}, {"alpha": 0.2}):
        assert changed(**settings) == judged | {"rank", "categories"}  # of runs that ask for them
    assert changed(n_onset=12) == judged | {"effects", "elicited", "gate_open"}  # the control


def looked_at(inputs: RunInputs, absent: dict[Kind, str] | None = None) -> Dissociation:
    """Run the stage on effects, as if another had measured them; what it wrote at the look before is deleted."""
    measured, outcomes = effects(inputs)
    for name in ("stages", "outcomes.parquet"):
        inputs.file(name).mkdir(exist_ok=True)
    inputs.file("stages/dissociate.json").unlink(missing_ok=True)
    measured.model_copy(update={"absent": absent or {}}).write(inputs.file("stages/effects.json"))
    ids = [prompt.id for prompt in inputs.prompts]
    write_outcomes(inputs.file("outcomes.parquet/effects.parquet"), ids, outcomes)
    dissociate(inputs)
    return Dissociation.read(inputs.file("stages/dissociate.json"))


def test_a_run_that_goes_on_is_looked_at_again_and_all_looks_share_the_level(prompts, tmp_path) -> None:
    seen, levels = [], []
    for limit, absent in ((20, None), (40, {"normative": "too few"}), (60, None), (60, None), (None, None)):
        config = configured(prompts)
        config = config.model_copy(update={"generate": config.generate.model_copy(update={"limit": limit})})
        inputs = RunInputs(config, tmp_path, QUIET)
        did = [Completion(p.id, p.text, "", DECLINES[p.label], "", ()) for p in inputs.prompts]
        write_completions(did, inputs.file("completions.jsonl"))
        result = looked_at(inputs, absent)
        if absent is None:
            seen.append(result.looks)
            levels.append(result.level)
        assert result.level == look_level(result.looks)
        assert result.null_level == look_level(result.looks, 0.05, 0.5)
        said = f"intervals are at {result.level:.3f} and p-values at {result.null_level:.3f}, so that all looks"
        assert any(said in reason for reason in result.reasons) == (result.level < 0.05)
        share = result.effects[0]
        width = clopper_pearson(share.estimate * share.n_groups, share.n_groups, result.level)
        assert share.limits() == pytest.approx(width.limits())
    first, second, again, last = seen
    assert (second, again) == ((*first, second[-1]), second)  # a test that is not made, or made again, is no look
    assert last == (*second, 1.0)
    assert 0 < levels[0] < levels[1] == levels[2] < levels[3] < 0.05
    Looks(of=("another model", "its prompts"), shares=(0.1,)).write(inputs.file("looks.json"))
    once = looked_at(inputs)
    assert (once.looks, once.level) == ((1.0,), 0.05)
    assert all(result.contrasts[b].low < once.contrasts[b].low for b in KINDS)


def test_a_stage_that_judges_loads_no_model(prompts, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loaded_run, "open_model", lambda *_, **__: pytest.fail("loaded"))
    describe(Manifest(tmp_path / "manifest.json"), LoadedRun(configured(prompts), tmp_path, QUIET))


def test_each_margin_has_its_verdict_and_each_level_its_intervals(prompts, tmp_path) -> None:
    """Judged from files, without a model."""
    found = {}
    for margin, alpha in ((0.15, 0.05), (0.15, 0.2), (0.9, 0.05)):
        inputs = RunInputs(configured(prompts, margin=margin, alpha=alpha), tmp_path, QUIET)
        did = [Completion(p.id, p.text, "", DECLINES[p.label], "", ()) for p in inputs.prompts]  # as each is labelled
        write_completions(did, inputs.file("completions.jsonl"))
        measured, outcomes = effects(inputs)
        ids = [prompt.id for prompt in inputs.prompts]
        write_outcomes(tmp_path / "effects.parquet", ids, outcomes)
        measured = MeasuredEffects.model_validate_json(json.dumps(measured.to_dict()))
        found[margin, alpha] = judge_effects(inputs, measured, read_outcomes(tmp_path / "effects.parquet", ids))
    strict, loose, _ = found.values()
    assert [of.verdict for of in found.values()] == ["double_dissociation", "double_dissociation", "no_effect"]
    [turned] = [reason for reason in strict.reasons if " turns " in reason]
    share = strict.matrix["ablate_normative"]["abstentions_refused"]
    assert turned == f"ablating the normative direction turns {share.estimate:.0%} of the abstentions into refusals"
    assert [(of.margin, of.alpha) for of in found.values()] == list(found)
    for effect, other in zip(strict.effects, loose.effects, strict=True):
        assert (effect.estimate, effect.p_null) == (other.estimate, other.p_null)
    (own, crossed, *_), (loosely_own, *_) = strict.effects, loose.effects
    assert [(e.ablated, e.behaviour) for e in (own, crossed)] == [(KINDS[0], b) for b in KINDS]
    assert own.low < loosely_own.low < own.estimate
    assert (crossed.onset.estimate, crossed.onset.n) == (2.0, 12)  # nats that the log-odds fall
    assert not own.onset.known  # of decliners one of which had no finite score
    (variant,), (loosely,) = strict.variants, loose.variants
    assert variant.onset_effect == {"normative": None, "epistemic": 2.5}
    assert (variant.benign_answered.estimate, variant.benign_answered.n) == (1.0, 8)
    assert variant.stopped["normative"].low < loosely.stopped["normative"].low
    assert strict.matrix == loose.matrix  # always at 95 %
    assert strict.matrix["add_normative"]["refusal_on_answered_benign"].estimate == 1.0


class Untaught:
    """Answers nothing new: every completion under an intervention is the plain one."""

    def __init__(self, loaded: LoadedRun) -> None:
        self.loaded = loaded

    def complete_some(self, rows, settings, advance):  # type: ignore[no-untyped-def]
        return [[self.loaded.completions[row] for row in own] for own in rows]


def test_only_prompts_that_can_matter_are_measured_and_judged_as_all_are(prompts, tmp_path) -> None:
    loaded = LoadedRun(configured(prompts, n_side_effects=6), tmp_path, QUIET)
    refused = {"harmful": ("refuse", "answer"), "uncertain": ("abstain", "refuse"), "benign": ("answer", "pivot")}
    did = [refused[p.label][i % 3 == 0] for i, p in enumerate(loaded.prompts)]
    write_completions(
        [Completion(p.id, p.text, "", a, "", ()) for p, a in zip(loaded.prompts, did, strict=True)],
        loaded.file("completions.jsonl"),
    )
    measured, of_all = effects(loaded)
    loaded.__dict__["completer"] = Untaught(loaded)
    edits = dict.fromkeys(("none", *(f"{how}_{kind}" for kind in KINDS for how in ("ablate", "add", "ablate_random"))))
    setup = DissociationSetup({}, {kind: loaded.behaviour.decliners(kind, *TESTED) for kind in KINDS}, {})
    found = {name: of.rows for (_, name), of in _outcomes(loaded, setup, edits).items()}
    test, answered, corpus = loaded.corpus.within("test"), loaded.behaviour.answered, loaded.corpus
    others = {name: set(rows[~answered[rows]].tolist()) for name, rows in found.items()}
    unanswered = set(np.flatnonzero(test & ~answered & corpus.rated).tolist())
    assert others["ablate_epistemic"] == unanswered.union(*(rows.tolist() for rows in setup.decliners.values()))
    assert not answered[found["ablate_random_normative"]].any()
    assert len(others["ablate_random_normative"]) == len(others["add_normative"]) == 4 * 6  # benign ones: known or not
    for name in ("ablate_normative", "add_normative"):
        drawn = found[name][answered[found[name]]]
        assert np.unique([p.label for p in np.array(loaded.prompts)[drawn]], return_counts=True)[1].tolist() == [12, 6]
    assert all((found[f"{how}_normative"] == found[f"{how}_epistemic"]).all() for how in ("add", "ablate"))

    measured_on = {name: rows[test[rows]] for name, rows in found.items()}  # as the made-up ones are
    some = {key: of.among(measured_on[key[1]]) if key[0] == PLAIN else of for key, of in of_all.items()}
    whole, part = judge_effects(loaded, measured, of_all), judge_effects(loaded, measured, some)
    assert str(part.effects) == str(whole.effects)  # with NaN in both
    assert (part.verdict, part.reasons, part.contrasts) == (whole.verdict, whole.reasons, whole.contrasts)
    assert part.matrix["none"] == whole.matrix["none"]
    for kind in KINDS:
        exact, estimated = (of.matrix[f"ablate_{kind}"] for of in (whole, part))
        assert exact.keys() == estimated.keys()
        for column, share in estimated.items():
            assert share.low <= exact[column].estimate <= share.high
            if column.startswith(("refusals_", "abstentions_")):  # of decliners, all of whom are measured
                assert share == exact[column]
    rows, (own, plain) = np.flatnonzero(corpus.benign & test), (some[PLAIN, n] for n in ("add_normative", "none"))
    change = share_of_all(loaded, rows, own, {"refuse"}, plain).change
    assert change.estimate == pytest.approx(answered[rows].mean())  # as all of the answered ones refuse
    assert change.low < change.estimate < change.high < 1


def test_by_reason_refusals_of_uncertain_prompts_are_judged_as_their_own_kind(prompts, tmp_path) -> None:
    inputs = RunInputs(configured(prompts), tmp_path, QUIET)
    did = [Completion(p.id, p.text, "", "answer" if p.label == "benign" else "refuse", "", ()) for p in inputs.prompts]
    write_completions(did, inputs.file("completions.jsonl"))
    rows, corpus = np.flatnonzero(inputs.corpus.within("test")), inputs.corpus
    plain, outcomes = inputs.behaviour.actions[rows], {}
    for name, stops in (
        ("none", corpus.benign),
        ("ablate_normative", corpus.harmful),
        ("ablate_epistemic", corpus.uncertain),
    ):
        outcomes[PLAIN, name] = Outcomes.of(rows, np.where(stops[rows], "answer", plain))
    outcomes |= {(PLAIN, f"add_{kind}"): outcomes[PLAIN, "none"] for kind in KINDS}
    null = {a: {b: NullRecord.of(9.0 if a == b else 0.0, (1.0,) * 99, (0.5,)) for b in KINDS} for a in KINDS}
    measured = MeasuredEffects(directions=KINDS, unsound=(), absent={}, null=null, dependence=None, side_effects={})
    result = judge_effects(inputs, measured, outcomes)
    assert (result.basis, result.verdict) == ("reason", "double_dissociation")
    assert BY_REASON in result.reasons
    assert [row[1] for row in tables(result)[0].rows] == ["declining harmful", "declining uncertain"] * 2
    assert {(of.ablated, of.behaviour): of.estimate for of in result.effects} == {
        (a, b): float(a == b) for a in KINDS for b in KINDS
    }
    assert replace(inputs, of=inputs).behaviour.basis == "elicited"  # of a run under a system line
    inputs.file("stages").mkdir()
    write_json(inputs.file("stages/probe.json"), {"basis": "wording"})  # the directions were fitted by it
    assert RunInputs(inputs.config, tmp_path, QUIET).behaviour.basis == "wording"
    plainly, without = result.matrix["none"], result.matrix["ablate_epistemic"]
    assert [plainly[name].estimate for name in ("abstention_on_uncertain", "abstentions_refused")] == [1.0, 0.0]
    assert [without[name].estimate for name in ("abstention_on_uncertain", "abstentions_answered")] == [0.0, 1.0]
