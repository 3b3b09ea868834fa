"""Each verdict follows from effects built for it, and from no others."""

from collections import Counter
from itertools import product
from typing import get_args

import numpy as np
import pytest

from experiments.dissociation.verdict import Effect, Verdict, judge_dissociation, measure, verdict_shown
from experiments.dissociation.verdict_rules import (
    EFFECT_KEYS,
    REASONS,
    Cell,
    DissociationVerdict,
    EffectTable,
    Side,
    estimated_table,
    possible_cells,
    verdict_of,
)
from experiments.run.behaviour import KINDS, Kind
from experiments.run.wording import VERDICTS
from extract.shipped import ROOT
from probes.statistics.intervals import Estimate

N, E = KINDS


def effect(share: float, n: int = 100, p: float = 0.005) -> Effect:
    stopped = np.zeros(n, dtype=bool)
    stopped[: round(share * n)] = True
    return Effect(stopped, p)


def judged(nn: Effect, ne: Effect, en: Effect, ee: Effect, n_groups: int = 100) -> Verdict:
    """Judge effects keyed (direction ablated, behaviour)."""
    effects = {(N, N): nn, (N, E): ne, (E, N): en, (E, E): ee}
    return judge_dissociation(effects, {N: n_groups, E: n_groups}, {}, margin=0.15, alpha=0.05)


none = effect(0.0, p=1.0)


FULL, SILENT = effect(1.0), effect(0.0, p=0.005)  # SILENT moves the log-odds beyond the null and stops nothing


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
    ],
)  # keyed as in `judged`
def test_each_pattern_has_its_verdict(effects: tuple[Effect, Effect, Effect, Effect], verdict: str) -> None:
    assert judged(*effects).verdict == verdict


def test_an_effect_within_the_null_is_reported() -> None:
    verdict = judged(effect(0.9, p=0.2), none, none, effect(0.8))
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("normative: its effect is not beyond that of permuted-label directions (p = 0.2)",)


@pytest.mark.parametrize("how", [{"unsound": [N]}, {"weak": [N]}])
def test_a_direction_that_met_no_selection_rule_supports_no_verdict(how: dict[str, list[Kind]]) -> None:
    for e_on_n, e_on_e in ((none, effect(0.8)), (none, none)):  # double, single
        effects = {(N, N): effect(0.9), (N, E): none, (E, N): e_on_n, (E, E): e_on_e}
        verdict = judge_dissociation(effects, {N: 100, E: 100}, {}, margin=0.15, alpha=0.05, **how)
        assert verdict.verdict == "inconclusive"
        assert "no locus met the selection rules for the normative write direction" in verdict.reasons[0]


def test_a_single_dissociation_may_have_a_second_direction_that_induces_nothing_but_breaks_nothing() -> None:
    """Where nothing at the candidate layers decides abstaining, no direction there can induce it."""
    effects, groups = {(N, N): effect(0.9), (N, E): none, (E, N): effect(0.5), (E, E): none}, {N: 100, E: 100}
    verdict = judge_dissociation(effects, groups, {}, weak=[E], margin=0.15, alpha=0.05)
    assert verdict.verdict == "single_dissociation_normative"
    assert verdict.reasons[1].startswith(
        "no locus met the selection rules for the epistemic write direction: none within the"
    )
    assert judge_dissociation(effects, groups, {}, [E], margin=0.15, alpha=0.05).verdict == "inconclusive"


def test_what_one_direction_does_to_both_rests_on_the_other_too() -> None:
    """A second direction that induces nothing may be a bad estimate: that it stops nothing then says nothing."""
    full = effect(1.0)
    effects, groups = {(N, N): full, (N, E): full, (E, N): none, (E, E): none}, {N: 100, E: 100}
    assert judge_dissociation(effects, groups, {}, margin=0.15, alpha=0.05).verdict == "one_direction_normative"
    assert judge_dissociation(effects, groups, {}, weak=[E], margin=0.15, alpha=0.05).verdict == "inconclusive"


def test_directions_that_overlap_are_graded() -> None:
    """The issue's examples: 97 % of the own and 70 % of the other's; and the figures from a taught SmolLM2."""
    assert judged(effect(0.97), effect(0.7), effect(0.7), effect(0.97)).verdict == "graded_dissociation"
    taught = [effect(share, 400) for share in (0.60, 0.27, 0.05, 0.57)]
    assert judged(*taught, n_groups=400).verdict == "graded_dissociation"


def test_a_stream_that_shows_declining_in_no_direction_is_nonlinear() -> None:
    effects = {(N, N): none, (N, E): none, (E, N): none, (E, E): none}
    verdict = judge_dissociation(effects, {N: 100, E: 100}, {}, (), [N], margin=0.15, alpha=0.05)
    assert verdict.verdict == "nonlinear"
    full = dict.fromkeys(EFFECT_KEYS, effect(1.0))
    assert judge_dissociation(full, {N: 100, E: 100}, {}, (), [N], margin=0.15, alpha=0.05).verdict == "shared_knob"


def test_too_few_distinct_permutations_are_inconclusive() -> None:
    few = Effect(effect(0.9).stopped, None, 199, n_labellings=462.0)
    verdict = judged(few, Effect(none.stopped, None, 199, 462.0), none, effect(0.8))
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == (
        "the groups of training prompts allow only 462 distinct permutations of the normative labels, and the null "
        "needs 1,000; give prompts of more pairs, entities or templates",
    )


def test_a_knob_that_turns_one_behaviour_only_is_not_shared() -> None:
    full, silent = effect(1.0), effect(0.0, p=0.005)
    verdict = judged(full, silent, full, silent)
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("the effects fit no pattern: see the matrix",)
    assert verdict.power == ()


def tables() -> list[EffectTable]:
    """Every table of classes whose contrasts can be differences of its effects."""
    every = [EffectTable(dict(zip(EFFECT_KEYS, cells, strict=True)), dict(zip(KINDS, sides, strict=True)))
             for cells in product(get_args(Cell), repeat=4) for sides in product(get_args(Side), repeat=2)]  # fmt: skip
    return [table for table in every if table.is_consistent(0.15)]


def test_the_map_is_total_and_as_documented() -> None:
    """Each table has exactly one verdict, all verdicts occur, and docs/dissociation.md lists each with its tables."""
    found = Counter(verdict_of(table) for table in tables()) + Counter({verdict_of(tables()[0], [N]): 1})
    assert set(found) == set(get_args(DissociationVerdict)) - {"not_applicable"}
    page = (ROOT / "docs" / "dissociation.md").read_text(encoding="utf-8")
    for table in tables():
        words = " | ".join(table.cells[key] for key in EFFECT_KEYS) + f" | {table.sides[N]}, {table.sides[E]}"
        assert verdict_of(table) == documented(page, table), words


def documented(page: str, table: EffectTable) -> str:
    """Return the verdict of the first row of the page's map that fits a table."""
    lines = page.split("<!-- map -->")[1].strip().splitlines()[2:]
    for line in lines:
        *wanted, verdict = (cell.strip() for cell in line.strip("|").split("|"))
        of = [*(table.cells[key] for key in EFFECT_KEYS), *(table.sides[b] for b in KINDS)]
        if all(want == "any" or value in want.split(" or ") for want, value in zip(wanted, of, strict=True)):
            return verdict.split("`")[1]
    raise AssertionError(f"no row fits {table}")


def test_every_verdict_has_its_sentence() -> None:
    said = set(get_args(DissociationVerdict))
    assert said <= set(VERDICTS)
    assert set(REASONS) == said - {"not_applicable", "inconclusive"}


@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_is_that_of_every_table_that_is_still_possible(seed: int) -> None:
    """Random intervals: whatever the true effects inside them are, they have the verdict shown, or none is shown."""
    rng, shown = np.random.default_rng(seed), Counter[str]()
    for _ in range(1500):
        centre = {key: rng.choice([0.02, 0.1, 0.4, 0.5, 0.9, 0.97]) for key in EFFECT_KEYS}
        half = rng.choice([0.02, 0.08, 0.2])
        intervals = {k: Estimate(c, max(0.0, c - half), min(1.0, c + half)) for k, c in centre.items()}
        for b, other in (KINDS, KINDS[::-1]):
            gap = centre[b, b] - centre[other, b]
            intervals[b] = Estimate(gap, gap - 2 * half, gap + 2 * half)
        verdict = verdict_shown(intervals, EFFECT_KEYS, 0.15)
        shown[verdict] += 1
        for _ in range(5):
            true = {key: rng.uniform(intervals[key].low, intervals[key].high)
                    for key in EFFECT_KEYS}  # fmt: skip
            points = {key: Estimate(p, p, p) for key, p in true.items()}
            for b, other in (KINDS, KINDS[::-1]):
                gap = true[b, b] - true[other, b]
                points[b] = Estimate(gap, gap, gap)
            if verdict != "inconclusive":
                assert verdict_of(estimated_table(points, 0.15)) == verdict
    assert len(shown) >= 6


def test_classes_of_an_effect() -> None:
    cases = {(0.0, 0.14): ("none",), (0.7, 0.9): ("full",), (0.72, 0.84): ("full",), (0.2, 0.8): ("partial",),
             (0.1, 0.2): ("none", "partial"), (0.6, 0.9): ("partial", "full"),
             (0.1, 0.9): ("none", "partial", "full")}  # fmt: skip
    for (low, high), classes in cases.items():
        assert possible_cells(Estimate((low + high) / 2, low, high), 0.15) == classes


def test_few_groups_are_inconclusive_and_say_how_many_would_do() -> None:
    verdict = judged(effect(0.5, 20), effect(0.3, 20, 0.5), effect(0.3, 20, 0.5), effect(0.5, 20), n_groups=5)
    assert verdict.verdict == "inconclusive"
    assert "independent decliners would settle it (now 5)" in " ".join(verdict.reasons)
    assert [need.quantity for need in verdict.power] == ["own_minus_other_on_normative", "own_minus_other_on_epistemic"]
    for need in verdict.power:
        assert need.question == "does it lie above 0.15?"
        assert need.needed is not None
        assert need.more == need.needed - 5


def test_an_effect_whose_estimate_alone_is_full_leaves_a_reason() -> None:
    """`partial` and `full` overlap: 0.76 is full, and its interval shows partial."""
    verdict = judged(effect(0.76), effect(0.95), none, none)
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons


def test_the_class_of_an_estimate_is_one_that_its_interval_leaves_possible() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        low, estimate, high = np.sort(rng.random(3))
        intervals = {key: Estimate(estimate, low, high) for key in EFFECT_KEYS}
        intervals |= {kind: Estimate(0.0, -0.1, 0.1) for kind in KINDS}
        cell = estimated_table(intervals, 0.15).cells[N, N]
        assert cell in possible_cells(intervals[(N, N)], 0.15)


def test_an_absent_behaviour_is_not_applicable_and_reports_the_lone_effect() -> None:
    verdict = judge_dissociation(
        {(N, N): effect(1.0)}, {N: 100, E: 0}, {E: "abstention is absent"}, margin=0.15, alpha=0.05
    )
    assert verdict.verdict == "not_applicable"
    assert verdict.reasons[0] == "abstention is absent"
    assert "ablating the normative direction stops 100%" in verdict.reasons[1]


def test_independent_noise_is_rarely_called_a_dissociation() -> None:
    """Both directions stop declining with the same probability: specificity has no ground."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(300):
        rate = rng.uniform(0, 1)
        effects = {key: Effect(rng.random(60) < rate, 0.005) for key in EFFECT_KEYS}
        wrong += "dissociation" in verdict_shown(*measure(effects, {N: 60, E: 60}, 0.05), 0.15)
    assert wrong / 300 <= 0.05
