"""Each verdict follows from effects built for it, and from no others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from experiments.dissociation import verdict as verdict_of_effects
from experiments.dissociation import verdict_rules as rules
from experiments.dissociation.verdict import Effect, Verdict, judge_dissociation, verdict_shown
from experiments.dissociation.verdict_rules import EFFECT_KEYS, QUANTITIES, EffectKey, Quantity
from experiments.run.behaviour import KINDS, Kind
from experiments.run.wording import VERDICTS
from extract.shipped import ROOT
from probes.statistics.intervals import Estimate

N, E = KINDS


def effect(share: float, n: int = 100, p: float = 0.005, n_null: int | None = None) -> Effect:
    return Effect(np.arange(n) < round(share * n), p, n_null)


def judged(*given: Any, n_groups: int = 100, weak: Sequence[Kind] = ()) -> Verdict:
    """Judge four effects in the order of EFFECT_KEYS; after them unsound directions, and nonlinear behaviours."""
    effects, groups = dict(zip(EFFECT_KEYS, given[:4], strict=True)), {N: n_groups, E: n_groups}
    return judge_dissociation(effects, groups, {}, *given[4:], weak=weak, margin=0.15, alpha=0.05)


none, FULL = effect(0.0, p=1.0), effect(1.0)
SILENT = effect(0.0, p=0.005)  # moves the log-odds beyond the null and stops nothing


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((effect(0.9), none, none, effect(0.8)), "double_dissociation"),
        ((FULL, FULL, FULL, FULL), "shared_knob"),
        ((FULL, effect(1.0, p=0.3), effect(1.0, p=0.3), FULL), "inconclusive"),  # not beyond the null
        ((effect(0.9), none, none, none), "single_dissociation_normative"),
        ((none, none, none, effect(0.9)), "single_dissociation_epistemic"),
        ((effect(0.9), none, effect(0.3), none), "single_dissociation_normative"),
        ((effect(0.9), none, effect(0.9), effect(0.9)), "inconclusive"),  # it does not spare the other behaviour
        ((effect(0.9), effect(0.5), none, effect(0.5)), "inconclusive"),
        ((effect(0.97), effect(0.97), effect(0.02), effect(0.02)), "one_direction_normative"),
        ((effect(0.02), effect(0.02), effect(0.97), effect(0.97)), "one_direction_epistemic"),
        ((none, none, none, none), "no_effect"),
        ((SILENT, SILENT, SILENT, SILENT), "no_effect"),
        ((effect(0.97), effect(0.7), effect(0.7), effect(0.97)), "graded_dissociation"),
    ],
)  # keyed as in `judged`
def test_each_pattern_has_its_verdict(effects, verdict) -> None:
    assert judged(*effects).verdict == verdict


@pytest.mark.parametrize(
    ("effects", "given", "weak", "verdict"),
    [
        ((effect(0.9), none, none, effect(0.8)), ([N],), (), "inconclusive"),  # else double
        ((effect(0.9), none, none, none), ([N],), (), "inconclusive"),  # else single
        ((effect(0.9), none, none, effect(0.8)), (), [N], "inconclusive"),
        ((effect(0.9), none, none, none), (), [N], "inconclusive"),
        ((effect(0.9), none, effect(0.5), none), ([E],), (), "inconclusive"),
        # where nothing at the candidate layers decides abstaining, no direction there can induce it
        ((effect(0.9), none, effect(0.5), none), (), [E], "single_dissociation_normative"),
        # a second direction that induces nothing may be a bad estimate: that it stops nothing then says nothing
        ((FULL, FULL, none, none), (), [E], "inconclusive"),
        ((none, none, none, none), ((), [N]), (), "nonlinear"),
        ((FULL, FULL, FULL, FULL), ((), [N]), (), "shared_knob"),
    ],
)
def test_what_else_is_known_of_directions_and_streams_bars_or_turns_a_verdict(effects, given, weak, verdict) -> None:
    found = judged(*effects, *given, weak=weak)
    assert found.verdict == verdict
    missed = [reason.startswith("no locus met the selection rules for the ") for reason in found.reasons]
    assert any(missed) == bool(weak or (given and given[0]))


FEW, FEW_SILENT = (Effect(of.stopped, None, 199, n_labellings=462.0) for of in (effect(0.9), none))


@pytest.mark.parametrize(
    ("effects", "reason"),
    [
        (
            (effect(0.9, p=0.2), none, none, effect(0.8)),
            "normative: its effect is not beyond that of permuted-label directions (p = 0.2)",
        ),
        (
            (FEW, FEW_SILENT, none, effect(0.8)),
            "the groups of training prompts allow only 462 distinct permutations of the normative labels, and the null "
            "needs 1,000; give prompts of more pairs, entities or templates",
        ),
        ((FULL, SILENT, FULL, SILENT), "the effects fit no pattern: see the matrix"),  # a knob of one behaviour only
    ],
    ids=["within the null", "few permutations", "no pattern"],
)
def test_what_bars_a_verdict_is_its_reason(effects, reason) -> None:
    verdict = judged(*effects)
    assert (verdict.verdict, verdict.reasons) == ("inconclusive", (reason,))
    assert verdict.power == () or effects[1] is not SILENT


def test_the_map_is_total_and_as_documented() -> None:
    """Each table has exactly one verdict, all verdicts occur, and docs/dissociation.md lists each with its tables."""
    every = product(*(rules.class_ranges(quantity, 0.15) for quantity in QUANTITIES))
    tables = [t for t in (dict(zip(QUANTITIES, of, strict=True)) for of in every) if rules.is_consistent(t, 0.15)]
    assert {*map(rules.verdict_of, tables), "nonlinear", "not_applicable"} == set(get_args(rules.DissociationVerdict))
    page = (ROOT / "docs" / "dissociation.md").read_text(encoding="utf-8")
    assert [rules.verdict_of(table) for table in tables] == [documented(page, table) for table in tables]


def test_each_verdict_has_its_sentence_and_the_effects_that_must_exceed_the_null() -> None:
    both_own, one = ((N, N), (E, E)), {b: f"single_dissociation_{b}" for b in KINDS}
    needed = {verdict: set(rules.beyond_null(verdict)) for verdict in get_args(rules.DissociationVerdict)}
    assert needed["double_dissociation"] == needed["graded_dissociation"] == set(both_own)
    assert [needed[verdict] for verdict in one.values()] == [{key} for key in both_own]
    assert [needed[f"one_direction_{kind}"] for kind in KINDS] == [{(kind, N), (kind, E)} for kind in KINDS]
    assert needed["shared_knob"] == set(EFFECT_KEYS)
    assert not needed["no_effect"] | needed["nonlinear"]
    assert set(needed) <= set(VERDICTS)  # each has its sentence
    assert set(rules.REASONS) == set(needed) - {"not_applicable", "inconclusive"}


def documented(page: str, table: rules.Table) -> str:
    for line in page.split("<!-- map -->")[1].strip().splitlines()[2:]:
        *wanted, verdict = (cell.strip() for cell in line.strip("|").split("|"))
        of = [table[quantity] for quantity in QUANTITIES]
        if all(want == "any" or value in want.split(" or ") for want, value in zip(wanted, of, strict=True)):
            return verdict.split("`")[1]
    raise AssertionError(f"no row fits {table}")


def with_contrasts(effects: dict[EffectKey, tuple[float, float, float]], half: float) -> dict[Quantity, Estimate]:
    gaps = {b: effects[b, b][0] - effects[rules.other_kind(b), b][0] for b in KINDS}
    contrasts = {b: Estimate(gap, gap - half, gap + half) for b, gap in gaps.items()}
    return {key: Estimate(*limits) for key, limits in effects.items()} | contrasts


@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_is_that_of_every_table_that_is_still_possible(seed) -> None:
    """Random intervals: whatever the true effects inside them are, they have the verdict shown, or none is shown."""
    rng, shown = np.random.default_rng(seed), Counter[str]()
    for _ in range(1500):
        centre = {key: rng.choice([0.02, 0.1, 0.4, 0.5, 0.9, 0.97]) for key in EFFECT_KEYS}
        half = rng.choice([0.02, 0.08, 0.2])
        limits = {k: (c, max(0.0, c - half), min(1.0, c + half)) for k, c in centre.items()}
        intervals = with_contrasts(limits, 2 * half)
        verdict = verdict_shown(intervals, EFFECT_KEYS, 0.15)
        shown[verdict] += 1
        for _ in range(5):
            true = {key: (rng.uniform(intervals[key].low, intervals[key].high),) * 3 for key in EFFECT_KEYS}
            if verdict != "inconclusive":
                assert rules.verdict_of(rules.estimated_table(with_contrasts(true, 0.0), 0.15)) == verdict
    assert len(shown) >= 6


def test_an_interval_leaves_classes_possible_and_its_estimate_has_one_of_them() -> None:
    cases = {(0.0, 0.14): ("none",), (0.7, 0.9): ("full",), (0.72, 0.84): ("full",), (0.2, 0.8): ("partial",),
             (0.1, 0.2): ("none", "partial"), (0.6, 0.9): ("partial", "full"),
             (0.1, 0.9): ("none", "partial", "full")}  # fmt: skip
    for (low, high), classes in cases.items():
        assert rules.possible_classes((N, N), Estimate((low + high) / 2, low, high), 0.15) == classes
    rng = np.random.default_rng(0)
    for _ in range(500):
        low, estimate, high = np.sort(rng.random(3))
        intervals = dict.fromkeys(QUANTITIES, Estimate(estimate, low, high))
        for quantity, name in rules.estimated_table(intervals, 0.15).items():
            assert name in rules.possible_classes(quantity, intervals[quantity], 0.15)


def test_only_missing_requirements_of_the_nearest_verdict_are_open_and_say_how_many_would_do() -> None:
    verdict = judged(effect(0.9, 40), effect(0.05, 40), effect(0.0, 40), effect(0.3, 40), n_groups=40)
    assert verdict.verdict == "inconclusive"
    assert [(need.quantity, need.question) for need in verdict.power] == [
        ("own_minus_other_on_epistemic", "does it lie above 0.15?"),
        ("ablate_normative_on_epistemic", "does it lie below 0.15?"),
    ]
    for need, reason in zip(verdict.power, verdict.reasons, strict=True):
        assert need.more == need.needed - 40
        about = f"about {need.needed} independent decliners would settle it (now 40) with a power of 80%"
        assert reason.endswith(about)
    assert "the share that ablating normative stops is 0.05" in verdict.reasons[1]


def test_estimates_that_fit_no_pattern_are_settled_by_no_number() -> None:
    """Own minus other above the margin on refusals, within it on abstentions: more prompts would show just that."""
    estimates = effect(0.65), effect(0.58), effect(0.25), effect(0.68)
    found = judged(*estimates, n_groups=60, weak=[N])
    (need,) = found.power
    assert (need.quantity, need.question, need.needed) == (
        "own_minus_other_on_epistemic",
        "does it lie above 0.15?",
        None,
    )
    nothing = "no number would settle it: as estimated the effects fit no pattern"
    assert found.reasons[0].endswith(f"does it lie above 0.15? {nothing}")
    assert found.reasons[1:] == (verdict_of_effects.INDUCES_NOT.format(N),)  # it would bar every verdict but one
    assert judged(*estimates, n_groups=100_000).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("neither", "verdict"),
    [({}, "double_dissociation"), ({(E, N): 0.1}, "double_dissociation"), ({(E, N): 0.3}, "inconclusive"),
     ({(N, N): 0.3}, "double_dissociation")],
)  # fmt: skip
def test_declines_that_become_no_answer_are_not_spared(neither: dict[EffectKey, float], verdict: str) -> None:
    effects = [
        replace(of, neither=np.arange(100) >= 100 * (1 - neither.get(key, 0)))
        for key, of in zip(EFFECT_KEYS, (effect(0.7), none, none, effect(0.7)), strict=True)
    ]
    found = judged(*effects)
    assert found.verdict == verdict
    said = "ablating the epistemic direction leaves 30% of the refusals neither answered nor declined"
    assert (said in found.reasons[-1]) == (verdict == "inconclusive")
    assert found.reasons[0].startswith("by the effects alone, " if verdict == "inconclusive" else "ablating each")


def test_p_values_have_a_level_of_their_own_at_a_look() -> None:
    own, effects = effect(0.9, p=0.03), dict.fromkeys(EFFECT_KEYS, none)
    effects |= {(N, N): own, (E, E): own}
    for null_alpha, verdict in ((None, "double_dissociation"), (0.04, "double_dissociation"), (0.02, "inconclusive")):
        found = judge_dissociation(effects, {N: 100, E: 100}, {}, margin=0.15, alpha=0.05, null_alpha=null_alpha)
        assert found.verdict == verdict


def test_too_few_null_draws_are_an_open_effect() -> None:
    full, silent = (effect(share, 40, p=0.1, n_null=9) for share in (1.0, 0.0))
    verdict = judged(full, silent, silent, full, n_groups=40)
    named = [(need.quantity, need.more) for need in verdict.power]
    assert named == [("null_normative_on_normative", 10), ("null_epistemic_on_epistemic", 10)]
    would = "about 19 permuted-label directions would settle it (now 9) with a power of 80%"
    assert verdict.reasons[0].endswith(f"(p = 0.1); {would}")


def test_an_effect_without_a_null_is_said_to_be_untested() -> None:
    untested = replace(FULL, p_null=None)
    verdict = judged(untested, none, none, FULL)
    assert (verdict.verdict, verdict.reasons) == (
        "inconclusive",
        ("normative: its effect was not compared with that of permuted-label directions",),
    )
    assert verdict.power[0].obstacle == "it was not compared with them"


def test_an_effect_whose_estimate_alone_is_full_leaves_a_reason() -> None:
    verdict = judged(effect(0.76), effect(0.95), none, none)  # 0.76 is full, and its interval shows partial too
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons


def test_an_absent_behaviour_is_not_applicable_and_reports_the_lone_effect() -> None:
    groups, missing = {N: 100, E: 0}, {E: "abstention is absent"}
    verdict = judge_dissociation({(N, N): effect(1.0)}, groups, missing, margin=0.15, alpha=0.05)
    assert (verdict.verdict, verdict.reasons[0]) == ("not_applicable", "abstention is absent")
    assert "ablating the normative direction stops 100%" in verdict.reasons[1]
