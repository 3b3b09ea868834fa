"""How often each verdict is wrong where the truth lies on its border: at most alpha, over groups of unequal size."""

import numpy as np
import pytest

from experiments.dissociation.verdict import Effect, measure, verdict_shown
from experiments.dissociation.verdict_rules import EFFECT_KEYS
from experiments.run.behaviour import KINDS
from probes.statistics.intervals import effective_number
from tests.support.covering import matrix

pytestmark = pytest.mark.slow

N, E = KINDS
MARGIN, ALPHA, TRIALS = 0.15, 0.05, 400
MOST = 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / TRIALS)  # what chance leaves of 5 % in so many trials

Table = tuple[float, float, float, float]  # of a behaviour's decliners: both stop them, own, other, neither
SPECIFIC: Table = (0.02, 0.96, 0.0, 0.02)
ALL: Table = (1.0, 0.0, 0.0, 0.0)
NONE: Table = (0.0, 0.0, 0.0, 1.0)
MANY, UNEQUAL = np.ones(60, int), np.repeat([1, 2, 4, 8], [20, 15, 10, 3])
BORDERS = {
    "double_dissociation": [(SPECIFIC, (0.0, 0.15, 0.0, 0.85)), (SPECIFIC, (0.15, 0.8, 0.0, 0.05))],
    "single_dissociation_normative": [(SPECIFIC, (0.0, 0.0, 0.15, 0.85)), ((0.0, 0.15, 0.0, 0.85), NONE)],
    "graded_dissociation": [((0.7, 0.29, 0.0, 0.01), (0.425, 0.15, 0.0, 0.425)), (SPECIFIC, (0.15, 0.83, 0.0, 0.02))],
    "one_direction_normative": [((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.7, 0.3)), ((0.15, 0.85, 0.0, 0.0), (0, 0, 1, 0))],
    "shared_knob": [(ALL, (0.425, 0.0, 0.15, 0.425)), (ALL, (0.425, 0.15, 0.0, 0.425)), (ALL, (0.15, 0, 0, 0.85))],
    "no_effect": [(NONE, (0.15, 0.0, 0.0, 0.85)), (NONE, (0.0, 0.15, 0.0, 0.85))],
}


def drawn(rng: np.random.Generator, table: Table, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Let whole groups be stopped or not: by the own direction, by the other."""
    outcome = np.repeat(rng.choice(4, len(sizes), p=table), sizes)
    return outcome < 2, outcome % 2 == 0


def verdicts(
    on_refusal: Table, on_abstention: Table, sizes: np.ndarray, by_row: bool = False, chance: tuple = ()
) -> list[str]:
    """Judge many experiments; the onset effects of the keys in `chance` are those of permuted labels."""
    rng, found = np.random.default_rng(5), []
    n = float(sizes.sum()) if by_row else effective_number(sizes)
    for _ in range(TRIALS):
        nn, en = drawn(rng, on_refusal, sizes)
        ee, ne = drawn(rng, on_abstention, sizes)
        p = {key: rng.integers(1, 201) / 200 if key in chance else 0.005 for key in EFFECT_KEYS}
        stopped = {(N, N): nn, (E, N): en, (E, E): ee, (N, E): ne}
        effects = {key: Effect(stopped[key], p[key]) for key in EFFECT_KEYS}
        found.append(verdict_shown(*measure(effects, {N: n, E: n}, ALPHA), MARGIN))
    return found


@matrix(
    "border, sizes",
    [pytest.param((v, t), id=f"{v}-{i}") for v, truths in BORDERS.items() for i, t in enumerate(truths)],
    [pytest.param(MANY, id="single prompts"), pytest.param(UNEQUAL, id="unequal groups")],
)
def test_a_verdict_is_wrong_at_most_in_alpha_where_one_requirement_just_fails(border, sizes) -> None:
    verdict, truth = border
    assert verdicts(*truth, sizes).count(verdict) / TRIALS <= MOST


def test_one_effect_no_better_than_the_null_is_enough_to_be_wrong_at_most_in_alpha() -> None:
    assert verdicts(ALL, ALL, MANY, chance=((N, E),)).count("shared_knob") / TRIALS <= MOST
    assert verdicts(SPECIFIC, SPECIFIC, MANY, chance=((N, N),)).count("double_dissociation") / TRIALS <= MOST


def test_independent_noise_is_rarely_called_a_dissociation() -> None:
    """Both directions stop declining with the same probability: specificity has no ground."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(300):
        rate = rng.uniform(0, 1)
        effects = {key: Effect(rng.random(60) < rate, 0.005) for key in EFFECT_KEYS}
        wrong += "dissociation" in verdict_shown(*measure(effects, {N: 60, E: 60}, ALPHA), MARGIN)
    assert wrong / 300 <= 0.05


def test_rows_of_a_group_taken_for_independent_would_be_wrong_far_more_often() -> None:
    """The control: the same simulation finds the fault it looks for."""
    border = ((0.7, 0.29, 0.0, 0.01), (0.24, 0.33, 0.18, 0.25))
    assert verdicts(*border, UNEQUAL, by_row=True).count("graded_dissociation") / TRIALS > 1.5 * MOST


@pytest.mark.parametrize(
    ("verdict", "truth", "least"),
    [
        ("double_dissociation", ((0.01, 0.79, 0.0, 0.2), (0.01, 0.79, 0.0, 0.2)), 0.95),
        ("single_dissociation_normative", (SPECIFIC, (0.0, 0.01, 0.01, 0.98)), 0.95),
        ("graded_dissociation", ((0.5, 0.48, 0.0, 0.02), (0.5, 0.48, 0.0, 0.02)), 0.95),
        ("one_direction_normative", ((0.0, 0.97, 0.0, 0.03), (0.0, 0.0, 0.97, 0.03)), 0.95),
        ("shared_knob", ((0.96, 0.01, 0.01, 0.02), (0.96, 0.01, 0.01, 0.02)), 0.8),
        ("no_effect", ((0.02, 0.0, 0.0, 0.98), (0.02, 0.0, 0.0, 0.98)), 0.8),
    ],
)
def test_sixty_groups_reach_each_verdict_where_it_is_plainly_true(verdict, truth, least) -> None:
    assert verdicts(*truth, MANY).count(verdict) / TRIALS >= least
