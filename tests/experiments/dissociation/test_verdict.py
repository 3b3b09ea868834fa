"""Each verdict follows from effects built for it, and from no others."""

import numpy as np
import pytest

from experiments.dissociation.effects import EFFECT_KEYS, Effect
from experiments.dissociation.verdict import Verdict, judge_dissociation, measure, rule_shown
from experiments.dissociation.verdict_rules import contrast_name, effect_name, rules
from experiments.run.behaviour import KINDS
from probes.statistics.intervals import Interval

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


def test_each_specific_is_a_double_dissociation() -> None:
    assert judged(effect(0.9), none, none, effect(0.8)).verdict == "double_dissociation"


def test_specific_must_beat_the_null_too() -> None:
    assert judged(effect(0.9, p=0.2), none, none, effect(0.8)).verdict != "double_dissociation"


def test_an_effect_within_the_null_is_reported() -> None:
    verdict = judged(effect(0.9, p=0.2), none, none, effect(0.8))
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("normative: its effect is not beyond that of permuted-label directions (p = 0.2)",)


def test_a_direction_that_met_no_selection_rule_supports_no_verdict() -> None:
    effects = {(N, N): effect(0.9), (N, E): none, (E, N): none, (E, E): effect(0.8)}
    verdict = judge_dissociation(effects, {N: 100, E: 100}, {}, [N], margin=0.15, alpha=0.05)
    assert verdict.verdict == "inconclusive"
    assert "no locus met the selection rules for the normative write direction" in verdict.reasons[0]


def test_equal_and_real_on_both_is_a_shared_knob() -> None:
    full = effect(1.0)
    assert judged(full, full, full, full).verdict == "shared_knob"


def test_equal_effects_that_do_not_beat_the_null_are_no_shared_knob() -> None:
    full, weak = effect(1.0), effect(1.0, p=0.3)
    assert judged(full, weak, weak, full).verdict == "inconclusive"


def test_one_specific_other_shown_not_specific_is_single() -> None:
    assert judged(effect(0.9), effect(0.9), none, effect(0.9)).verdict == "single_dissociation_normative"
    assert judged(effect(0.9), none, effect(0.9), effect(0.9)).verdict == "single_dissociation_epistemic"


def test_nothing_moves_is_no_effect() -> None:
    assert judged(none, none, none, none).verdict == "no_effect"


def test_what_moves_log_odds_and_stops_nothing_is_no_shared_knob() -> None:
    """However far beyond the null its onset effect lies, an ablation that opens no gate turns no knob."""
    silent = effect(0.0, p=0.005)
    assert judged(silent, silent, silent, silent).verdict == "no_effect"


def test_a_knob_that_turns_one_behaviour_only_is_not_shared() -> None:
    full, silent = effect(1.0), effect(0.0, p=0.005)
    verdict = judged(full, silent, full, silent)
    assert verdict.verdict == "inconclusive"
    assert verdict.reasons == ("the effects fit none of the rules: see the matrix",)
    assert verdict.power == ()


def test_no_two_rules_can_hold_at_once() -> None:
    """Whatever the intervals: rules require disjoint things of one quantity at least."""
    rng, names = np.random.default_rng(0), [*map(contrast_name, KINDS), *map(effect_name, EFFECT_KEYS)]
    seen = set()
    for _ in range(2000):
        ends = np.sort(rng.choice([0.0, 0.05, 0.2, 0.25], (6, 2)), axis=1)
        intervals = {name: Interval((a + b) / 2, a, b) for name, (a, b) in zip(names, ends, strict=True)}
        # effects that contradict the contrasts cannot be measured
        for b, other in (KINDS, KINDS[::-1]):
            own, off = intervals[effect_name((b, b))], intervals[effect_name((other, b))]
            intervals[contrast_name(b)] = Interval(own.estimate - off.estimate, own.low - off.high, own.high - off.low)
        holding = [rule.verdict for rule in rules(0.15) if rule.holds(intervals, EFFECT_KEYS)]
        assert len(holding) <= 1
        seen.update(holding)
    assert seen == {rule.verdict for rule in rules(0.15)}


def test_few_groups_are_inconclusive_and_say_how_many_would_do() -> None:
    verdict = judged(effect(0.5, 20), effect(0.3, 20, 0.5), effect(0.3, 20, 0.5), effect(0.5, 20), n_groups=5)
    assert verdict.verdict == "inconclusive"
    assert "independent decliners would settle it (now 5)" in " ".join(verdict.reasons)
    assert [need.quantity for need in verdict.power] == ["own_minus_other_on_normative", "own_minus_other_on_epistemic"]
    for need in verdict.power:
        assert need.question == "does it lie above 0.15?"
        assert need.needed is not None
        assert need.more == need.needed - 5


def test_the_same_rows_from_fewer_groups_say_less() -> None:
    many = judged(effect(0.5), effect(0.2), none, effect(0.9), n_groups=100)
    few = judged(effect(0.5), effect(0.2), none, effect(0.9), n_groups=8)
    key = f"own_minus_other_on_{N}"
    assert few.contrasts[f"own_minus_other_on_{E}"].low < many.contrasts[f"own_minus_other_on_{E}"].low
    assert few.contrasts[key].high - few.contrasts[key].low > many.contrasts[key].high - many.contrasts[key].low


def test_an_absent_behaviour_is_not_applicable_and_reports_the_lone_effect() -> None:
    verdict = judge_dissociation(
        {(N, N): effect(1.0)}, {N: 100, E: 0}, {E: "abstention is absent"}, margin=0.15, alpha=0.05
    )
    assert verdict.verdict == "not_applicable"
    assert verdict.reasons[0] == "abstention is absent"
    assert "ablating the normative direction stops 100%" in verdict.reasons[1]


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_do_not_depend_on_the_order_of_prompts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(100)
    effects = [effect(0.9), effect(0.1), effect(0.05), effect(0.8)]
    shuffled = [Effect(e.stopped[order], e.p_null) for e in effects]
    assert judged(*effects).verdict == judged(*shuffled).verdict


def test_independent_noise_is_rarely_called_a_dissociation() -> None:
    """Both directions stop declining with the same probability: specificity has no ground."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(300):
        rate = rng.uniform(0, 1)
        effects = {key: Effect(rng.random(60) < rate, 0.005) for key in EFFECT_KEYS}
        rule = rule_shown(*measure(effects, {N: 60, E: 60}, 0.05), 0.15)
        wrong += rule is not None and "dissociation" in rule.verdict
    assert wrong / 300 <= 0.05
